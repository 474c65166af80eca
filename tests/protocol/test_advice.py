"""What the owner of an account is told."""

from __future__ import annotations

import pytest

from covey.protocol.advice import advice
from covey.protocol.faults import FaultKind, fault_named

GENERAL = "https://api.z.ai/api/paas/v4"
CODING = "https://api.z.ai/api/coding/paas/v4"
ANTHROPIC = "https://api.z.ai/api/anthropic"
CN_GENERAL = "https://open.bigmodel.cn/api/paas/v4"
CN_CODING = "https://open.bigmodel.cn/api/coding/paas/v4"
OTHER = "https://llm.example/v1"
K = FaultKind


@pytest.mark.parametrize(
    ("kind", "base_url", "parts"),
    [
        pytest.param(K.NO_BALANCE, GENERAL, (f"{GENERAL} is the pay", CODING), id="1113 at the pay-as-you-go URL"),
        pytest.param(K.NO_BALANCE, CODING, (f"{CODING} is the coding", GENERAL), id="1113 at the coding URL"),
        pytest.param(K.NO_BALANCE, ANTHROPIC, (f"{ANTHROPIC} is the coding", GENERAL), id="1113 at the Anthropic URL"),
        pytest.param(K.NO_BALANCE, CN_GENERAL, (CN_CODING, "open.bigmodel.cn"), id="1113 in China names its own host"),
        pytest.param(K.NO_BALANCE, "https://api.z.ai/v1", (CODING, GENERAL, "neither"), id="1113 at a third URL"),
        pytest.param(K.NO_BALANCE, OTHER, (OTHER, "recharge"), id="an empty account elsewhere"),
        pytest.param(K.PLAN_EXPIRED, CODING, ("expired", GENERAL), id="1309"),
        pytest.param(K.PLAN_EXPIRED, OTHER, ("expired", OTHER), id="an expired plan elsewhere"),
        pytest.param(K.MODEL_NOT_IN_PLAN, CODING, ("does not include the model", GENERAL), id="1311"),
        pytest.param(
            K.MODEL_NOT_IN_PLAN, OTHER, ("does not include the model",), id="no such model in a plan elsewhere"
        ),
        pytest.param(K.LOCKED, CODING, ("covey budget unlock", "z.ai"), id="1313"),
        pytest.param(K.AUTH, CODING, ("open.bigmodel.cn do not work here",), id="a key of the wrong country"),
        pytest.param(K.AUTH, CN_CODING, ("keys of z.ai do not",), id="a key of the wrong country, in China"),
        pytest.param(K.AUTH, None, ("the provider does not accept",), id="no URL"),
        pytest.param(K.UNAFFORDABLE, OTHER, (OTHER, "fewer tokens", "recharge"), id="402 for this answer"),
        pytest.param(K.UNAFFORDABLE, CODING, ("z.ai", "shorter answers"), id="402 for this answer at Z.AI"),
        pytest.param(K.OUTPUT_TOO_LONG, OTHER, ("ask for less",), id="an answer that is too long"),
        pytest.param(K.PROVIDER_POLICY, OTHER, (OTHER, "privacy"), id="nobody may serve it"),
        pytest.param(K.OUT_OF_FILES, OTHER, ("ulimit -n",), id="EMFILE"),
    ],
)
def test_advice_names_what_is_wrong(kind: FaultKind, base_url: str | None, parts: tuple[str, ...]) -> None:
    text = advice(fault_named(kind, "refused"), base_url)

    assert text is not None
    assert [part for part in parts if part not in text] == []


@pytest.mark.parametrize("kind", [K.CONCURRENCY, K.OVERLOADED, K.QUOTA, K.BAD_REQUEST, K.UNKNOWN])
@pytest.mark.parametrize("base_url", [CODING, OTHER, None])
def test_what_passes_by_itself_needs_no_advice(kind: FaultKind, base_url: str | None) -> None:
    assert advice(fault_named(kind, "refused"), base_url) is None


@pytest.mark.parametrize(
    ("kind", "part"), [(K.UNAFFORDABLE, "an answer of 7117 tokens"), (K.OUTPUT_TOO_LONG, "(at most 7117 tokens)")]
)
def test_advice_names_the_bound(kind: FaultKind, part: str) -> None:
    assert part in (advice(fault_named(kind, "refused", limit_tokens=7117), OTHER) or "")


def test_what_stands_before_the_at_sign_is_not_told() -> None:
    text = advice(fault_named(K.NO_BALANCE, "refused"), "https://me:secret@api.z.ai/api/paas/v4?key=secret")

    assert text is not None
    assert "secret" not in text
