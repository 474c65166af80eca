"""What its owner should do about a fault that no repetition ends: which URL, key, plan or setting is wrong. Pure.

No key, and nothing that may stand before the `@` of a URL, is ever in the text.
"""

from __future__ import annotations

from typing import Final

from .destination import Place, is_zai, place_of
from .fault_kinds import Fault, FaultKind

_PAY_AS_YOU_GO: Final = "/api/paas/v4"
_CODING_PLAN: Final = "/api/coding/paas/v4"
_CODING_PLAN_ANTHROPIC: Final = "/api/anthropic"
_PAGES: Final = {True: "open.bigmodel.cn", False: "z.ai"}


def advice(fault: Fault, base_url: str | None) -> str | None:
    """Say in one line what is wrong and what ends it; None for faults that are nobody's to settle."""
    place = place_of(base_url)
    if place is None or not is_zai(base_url):
        return _anywhere(fault, "the provider" if place is None else _url(place))
    match fault.kind:
        case FaultKind.NO_BALANCE:
            return _balance(place)
        case FaultKind.PLAN_EXPIRED:
            return (
                f"the plan behind this key has expired: renew it at {_page(place)}, or use the pay-as-you-go URL "
                f"{_twin(place, _PAY_AS_YOU_GO)} with a key that has balance"
            )
        case FaultKind.MODEL_NOT_IN_PLAN:
            return (
                f"the plan behind this key does not include the model: configure another model, change the plan at "
                f"{_page(place)}, or use the pay-as-you-go URL {_twin(place, _PAY_AS_YOU_GO)}"
            )
        case FaultKind.AUTH:
            other = _PAGES[not _is_chinese(place)]
            return (
                f"{_url(place)} does not know this key: compare it with the one at {_page(place)}; "
                f"keys of {other} do not work here"
            )
        case _:
            return _anywhere(fault, _page(place))


def _balance(place: Place) -> str:
    coding, general = _twin(place, _CODING_PLAN), _twin(place, _PAY_AS_YOU_GO)
    if _is_under(place, _PAY_AS_YOU_GO):
        return (
            f"{_url(place)} is the pay-as-you-go URL, and there is no balance for it: a coding-plan key belongs at "
            f"{coding}; for pay-as-you-go, recharge at {_page(place)}"
        )
    if _is_under(place, _CODING_PLAN) or _is_under(place, _CODING_PLAN_ANTHROPIC):
        return (
            f"{_url(place)} is the coding plan's URL, and this key has no plan: a pay-as-you-go key belongs at "
            f"{general}; else buy or renew the plan at {_page(place)}"
        )
    return f"{_url(place)} is neither the coding plan's URL ({coding}) nor the pay-as-you-go one ({general})"


def _anywhere(fault: Fault, where: str) -> str | None:
    match fault.kind:
        case FaultKind.NO_BALANCE:
            return f"the account at {where} has nothing left to pay with: recharge it, or use another key"
        case FaultKind.PLAN_EXPIRED:
            return f"the plan at {where} has expired: renew it, or use another key"
        case FaultKind.MODEL_NOT_IN_PLAN:
            return f"the plan at {where} does not include the model: configure another model or change the plan"
        case FaultKind.LOCKED:
            return f"{where} closed the account to us: settle it there first, then `covey budget unlock`"
        case FaultKind.AUTH:
            return f"{where} does not accept this key: set a valid one"
        case FaultKind.UNAFFORDABLE:
            what = "fewer tokens" if fault.limit_tokens is None else f"an answer of {fault.limit_tokens} tokens"
            return f"the account at {where} can pay for {what} only: recharge it, or ask for shorter answers"
        case FaultKind.OUTPUT_TOO_LONG:
            most = "" if fault.limit_tokens is None else f" (at most {fault.limit_tokens} tokens)"
            return f"the model gives shorter answers than were asked for{most}: ask for less"
        case FaultKind.PROVIDER_POLICY:
            return (
                f"a setting of the account at {where} leaves nobody who may serve this model: look at its privacy rules"
            )
        case FaultKind.OUT_OF_FILES:
            return "this process or machine has no file descriptor left: raise `ulimit -n` and look for what holds them"
        case _:
            return None


def _is_under(place: Place, path: str) -> bool:
    return f"{place.path.rstrip('/')}/".startswith(f"{path}/")


def _twin(place: Place, path: str) -> str:
    return f"https://{place.host}{path}"


def _url(place: Place) -> str:
    port = "" if place.port is None else f":{place.port}"
    return f"https://{place.host}{port}{place.path}"


def _page(place: Place) -> str:
    return _PAGES[_is_chinese(place)]


def _is_chinese(place: Place) -> bool:
    return place.host.endswith("bigmodel.cn")
