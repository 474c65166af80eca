"""The shipped table of models: what vendors and registries say of them, each row with where and when it was read.

A shelf holds one vendor's models as they are at that vendor's own hosts. Elsewhere a name still says what the model can
do and how large its window is, but never what it costs; and weights that anybody may serve have the window that their
server was started with, so on a machine of one's own the table does not say it. Prices in other currencies than dollars
and of plans are not in here; where a provider asks more for very long prompts, the price is that of the others.

A value that no source states, or that two sources state differently, is left out.
"""

from __future__ import annotations

from typing import Final

import msgspec

from .settings import Price


class Source(msgspec.Struct, frozen=True):
    """Where rows were read, and the day it said so."""

    place: str
    as_of: str


class Row(msgspec.Struct, frozen=True):
    """One model. `can` has a letter for each ability: t tools, r reasoning, i images; None: nobody said."""

    name: str
    context_window: int | None
    max_output_tokens: int | None
    can: str | None
    source: Source
    price: Price | None = None
    is_family: bool = False
    """Every model whose name begins so has these values."""


class Shelf(msgspec.Struct, frozen=True, kw_only=True):
    """One vendor's models."""

    hosts: tuple[str, ...]
    """Where these names mean exactly these models; hosts below them count too."""
    priced_at: tuple[str, ...] = ()
    """Beginnings of host and path of the endpoints that bill by the prices in here."""
    is_open: bool = False
    """Anybody may serve these weights."""
    rows: tuple[Row, ...]


def _usd(input_: float, output: float, read: float | None = None, write: float | None = None) -> Price:
    return Price(input=input_, output=output, cache_read=read, cache_write=write)


def _claude_usd(input_: float, output: float) -> Price:
    """Anthropic's caches cost the same multiples of the input's price for every model."""
    read, write, write_1h = (round(input_ * factor, 6) for factor in (0.1, 1.25, 2))
    return Price(input=input_, output=output, cache_read=read, cache_write=write, cache_write_1h=write_1h)


_JULY: Final = "2026-07-02"
_NOVEMBER: Final = "2026-11-29"


def _registry(vendor_page: str) -> Source:
    return Source(f"models.dev, after {vendor_page}", _JULY)


_ZAI: Final = _registry("docs.z.ai/guides/overview/pricing")
_ZAI_LATEST: Final = Source("openrouter.ai/~z-ai/glm-latest", _NOVEMBER)
_ZAI_SHELF: Final = Shelf(
    hosts=("api.z.ai", "bigmodel.cn"),
    priced_at=("api.z.ai/api/paas",),
    is_open=True,
    rows=(
        Row("glm-4.5", 131_072, 98_304, "tr", _ZAI, _usd(0.6, 2.2, 0.11)),
        Row("glm-4.5-air", 131_072, 98_304, "tr", _ZAI, _usd(0.2, 1.1, 0.03)),
        Row("glm-4.5-flash", 131_072, 98_304, "tr", _ZAI, _usd(0.0, 0.0, 0.0)),
        Row("glm-4.5v", 64_000, 16_384, "tri", _ZAI, _usd(0.6, 1.8)),
        Row("glm-4.6", 204_800, 131_072, "tr", _ZAI, _usd(0.6, 2.2, 0.11)),
        Row("glm-4.6v", 128_000, 32_768, "tri", _ZAI, _usd(0.3, 0.9)),
        Row("glm-4.7", 204_800, 131_072, "tr", _ZAI, _usd(0.6, 2.2, 0.11)),
        Row("glm-4.7-flash", 200_000, 131_072, "tr", _ZAI, _usd(0.0, 0.0, 0.0)),
        Row("glm-4.7-flashx", 200_000, 131_072, "tr", _ZAI, _usd(0.07, 0.4, 0.01)),
        Row("glm-5", 204_800, 131_072, "tr", _ZAI, _usd(1.0, 3.2, 0.2)),
        Row("glm-5-turbo", 200_000, 131_072, "tr", _ZAI, _usd(1.2, 4.0, 0.24)),
        Row("glm-5v-turbo", 200_000, 131_072, "tri", _ZAI, _usd(1.2, 4.0, 0.24)),
        Row("glm-5.1", 200_000, 131_072, "tr", _ZAI, _usd(1.4, 4.4, 0.26)),
        Row("glm-5.2", 1_000_000, 131_072, "tr", _ZAI, _usd(1.4, 4.4, 0.26)),
        Row("glm-5.3", 1_048_576, 131_072, "tr", _ZAI_LATEST, _usd(1.4, 4.4, 0.26)),
    ),
)

_CLAUDE: Final = _registry("docs.anthropic.com/en/docs/about-claude/models")
_CLAUDE_NOW: Final = Source("platform.claude.com/docs/about-claude/models/overview", _NOVEMBER)
_ANTHROPIC_SHELF: Final = Shelf(
    hosts=("api.anthropic.com",),
    priced_at=("api.anthropic.com",),
    rows=(
        Row("claude-3-5-sonnet", 200_000, 8_192, "ti", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-3-7-sonnet", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-opus-4", 200_000, 32_000, "tri", _CLAUDE, _claude_usd(15.0, 75.0)),
        Row("claude-opus-4-0", 200_000, 32_000, "tri", _CLAUDE, _claude_usd(15.0, 75.0)),
        Row("claude-opus-4-1", 200_000, 32_000, "tri", _CLAUDE, _claude_usd(15.0, 75.0)),
        Row("claude-opus-4-5", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(5.0, 25.0)),
        Row("claude-opus-4-6", 1_000_000, 128_000, "tri", _CLAUDE, _claude_usd(5.0, 25.0)),
        Row("claude-opus-4-7", 1_000_000, 128_000, "tri", _CLAUDE, _claude_usd(5.0, 25.0)),
        Row("claude-opus-4-8", 1_000_000, 128_000, "tri", _CLAUDE, _claude_usd(5.0, 25.0)),
        Row("claude-opus-5", 1_000_000, 128_000, "tri", _CLAUDE_NOW, _claude_usd(5.0, 25.0)),
        Row("claude-opus-5-5", 1_000_000, 128_000, "tri", _CLAUDE_NOW, _claude_usd(4.0, 20.0)),
        Row("claude-sonnet-4", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-sonnet-4-0", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-sonnet-4-5", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-sonnet-4-6", 1_000_000, 64_000, "tri", _CLAUDE, _claude_usd(3.0, 15.0)),
        Row("claude-sonnet-5", 1_000_000, 128_000, "tri", _CLAUDE, _claude_usd(2.0, 10.0)),
        Row("claude-sonnet-5-5", 1_000_000, 128_000, "tri", _CLAUDE_NOW, _claude_usd(2.0, 10.0)),
        Row("claude-haiku-4-5", 200_000, 64_000, "tri", _CLAUDE, _claude_usd(1.0, 5.0)),
        Row("claude-haiku-5-5", 1_000_000, 128_000, "tri", _CLAUDE_NOW),
        Row("claude-fable-5", 1_000_000, 128_000, "tri", _CLAUDE, _claude_usd(10.0, 50.0)),
        Row("claude-fable-5-1", 1_000_000, 128_000, "tri", _CLAUDE_NOW, _claude_usd(10.0, 50.0)),
        Row("claude-fable-5-2", 1_000_000, 128_000, "tri", _CLAUDE_NOW, _claude_usd(8.0, 40.0)),
    ),
)

_GPT: Final = _registry("platform.openai.com/docs/models")
_GPT_NOW: Final = Source("developers.openai.com/api/docs/models/compare", _NOVEMBER)
_OPENAI_SHELF: Final = Shelf(
    hosts=("api.openai.com",),
    priced_at=("api.openai.com",),
    rows=(
        Row("gpt-4o", 128_000, 16_384, "ti", _GPT, _usd(2.5, 10.0, 1.25)),
        Row("gpt-4o-2024-05-13", 128_000, 4_096, "ti", _GPT, _usd(5.0, 15.0)),
        Row("gpt-4o-mini", 128_000, 16_384, "ti", _GPT, _usd(0.15, 0.6, 0.075)),
        Row("gpt-4.1", 1_047_576, 32_768, "ti", _GPT, _usd(2.0, 8.0, 0.5)),
        Row("gpt-4.1-mini", 1_047_576, 32_768, "ti", _GPT, _usd(0.4, 1.6, 0.1)),
        Row("gpt-4.1-nano", 1_047_576, 32_768, "ti", _GPT, _usd(0.1, 0.4, 0.025)),
        Row("o1", 200_000, 100_000, "tri", _GPT, _usd(15.0, 60.0, 7.5)),
        Row("o1-preview", 128_000, 32_768, "r", _GPT, _usd(15.0, 60.0, 7.5)),
        Row("o1-pro", 200_000, 100_000, "tri", _GPT, _usd(150.0, 600.0)),
        Row("o3", 200_000, 100_000, "tri", _GPT, _usd(2.0, 8.0, 0.5)),
        Row("o3-mini", 200_000, 100_000, "tr", _GPT, _usd(1.1, 4.4, 0.55)),
        Row("o3-pro", 200_000, 100_000, "tri", _GPT, _usd(20.0, 80.0)),
        Row("o4-mini", 200_000, 100_000, "tri", _GPT, _usd(1.1, 4.4, 0.275)),
        Row("gpt-5", 400_000, 128_000, "tri", _GPT, _usd(1.25, 10.0, 0.125)),
        Row("gpt-5-codex", 400_000, 128_000, "tri", _GPT, _usd(1.25, 10.0, 0.125)),
        Row("gpt-5-mini", 400_000, 128_000, "tri", _GPT, _usd(0.25, 2.0, 0.025)),
        Row("gpt-5-nano", 400_000, 128_000, "tri", _GPT, _usd(0.05, 0.4, 0.005)),
        Row("gpt-5-pro", 400_000, 272_000, "tri", _GPT, _usd(15.0, 120.0)),
        Row("gpt-5.1", 400_000, 128_000, "tri", _GPT, _usd(1.25, 10.0, 0.125)),
        Row("gpt-5.1-codex", 400_000, 128_000, "tri", _GPT, _usd(1.25, 10.0, 0.125)),
        Row("gpt-5.1-codex-max", 400_000, 128_000, "tri", _GPT, _usd(1.25, 10.0, 0.125)),
        Row("gpt-5.1-codex-mini", 400_000, 128_000, "tri", _GPT, _usd(0.25, 2.0, 0.025)),
        Row("gpt-5.2", 400_000, 128_000, "tri", _GPT, _usd(1.75, 14.0, 0.175)),
        Row("gpt-5.2-codex", 400_000, 128_000, "tri", _GPT, _usd(1.75, 14.0, 0.175)),
        Row("gpt-5.2-pro", 400_000, 128_000, "tri", _GPT, _usd(21.0, 168.0)),
        Row("gpt-5.3-codex", 400_000, 128_000, "tri", _GPT, _usd(1.75, 14.0, 0.175)),
        Row("gpt-5.4", 1_050_000, 128_000, "tri", _GPT, _usd(2.5, 15.0, 0.25)),
        Row("gpt-5.4-mini", 400_000, 128_000, "tri", _GPT, _usd(0.75, 4.5, 0.075)),
        Row("gpt-5.4-nano", 400_000, 128_000, "tri", _GPT, _usd(0.2, 1.25, 0.02)),
        Row("gpt-5.4-pro", 1_050_000, 128_000, "tri", _GPT, _usd(30.0, 180.0)),
        Row("gpt-5.5", 1_050_000, 128_000, "tri", _GPT, _usd(5.0, 30.0, 0.5)),
        Row("gpt-5.5-pro", 1_050_000, 128_000, "tri", _GPT, _usd(30.0, 180.0)),
        Row("gpt-5.6-sol", 1_050_000, 128_000, None, _GPT_NOW),
        Row("gpt-5.6-terra", 1_050_000, 128_000, None, _GPT_NOW),
        Row("gpt-5.6-luna", 1_050_000, 128_000, None, _GPT_NOW),
    ),
)

_GEMINI: Final = _registry("ai.google.dev/gemini-api/docs/models")
_GOOGLE_SHELF: Final = Shelf(
    hosts=("generativelanguage.googleapis.com",),
    priced_at=("generativelanguage.googleapis.com",),
    rows=(
        Row("gemini-2.5-pro", 1_048_576, 65_536, "tri", _GEMINI, _usd(1.25, 10.0, 0.125)),
        Row("gemini-2.5-flash", 1_048_576, 65_536, "tri", _GEMINI, _usd(0.3, 2.5, 0.03)),
        Row("gemini-2.5-flash-lite", 1_048_576, 65_536, "tri", _GEMINI, _usd(0.1, 0.4, 0.01)),
        Row("gemini-3-flash-preview", 1_048_576, 65_536, "tri", _GEMINI, _usd(0.5, 3.0, 0.05)),
        Row("gemini-3-pro-preview", 1_048_576, 65_536, "tri", _GEMINI, _usd(2.0, 12.0, 0.2)),
        Row("gemini-3.1-flash-lite", 1_048_576, 65_536, "tri", _GEMINI, _usd(0.25, 1.5, 0.025)),
        Row("gemini-3.1-pro-preview", 1_048_576, 65_536, "tri", _GEMINI, _usd(2.0, 12.0, 0.2)),
        Row("gemini-3.5-flash", 1_048_576, 65_536, "tri", _GEMINI, _usd(1.5, 9.0, 0.15)),
    ),
)

# At night, and at weekends, half of this: the prices are those of the dear hours.
_DEEPSEEK: Final = Source("api-docs.deepseek.com/quick_start/pricing", _NOVEMBER)
_DEEPSEEK_SHELF: Final = Shelf(
    hosts=("api.deepseek.com",),
    priced_at=("api.deepseek.com",),
    is_open=True,
    rows=(
        Row("deepseek-flash", 1_000_000, 384_000, "tri", _DEEPSEEK, _usd(0.3, 1.2, 0.006)),
        # An old name that the vendor serves with its newest flash model; others still serve the model of that name.
        Row("deepseek-v4-flash", 1_000_000, 384_000, "tr", _registry("api-docs.deepseek.com/quick_start/pricing")),
        Row("deepseek-v4-pro", 1_000_000, 384_000, "tr", _DEEPSEEK, _usd(1.32, 3.96, 0.044)),
    ),
)

_KIMI: Final = _registry("platform.moonshot.ai/docs/api/chat")
_KIMI_NOW: Final = Source("vercel.com/ai-gateway/models, after platform.kimi.ai", _NOVEMBER)
_KIMI_K3: Final = Source("novita.ai/models/llm/moonshotai-kimi-k3", _NOVEMBER)
_MOONSHOT_SHELF: Final = Shelf(
    hosts=("api.moonshot.ai", "api.moonshot.cn"),
    priced_at=("api.moonshot.ai",),
    is_open=True,
    rows=(
        Row("kimi-k2-0711-preview", 131_072, 16_384, "t", _KIMI, _usd(0.6, 2.5, 0.15)),
        Row("kimi-k2-0905-preview", 262_144, 262_144, "t", _KIMI, _usd(0.6, 2.5, 0.15)),
        Row("kimi-k2-turbo-preview", 262_144, 262_144, "t", _KIMI, _usd(2.4, 10.0, 0.6)),
        Row("kimi-k2-thinking", 262_144, 262_144, "tr", _KIMI, _usd(0.6, 2.5, 0.15)),
        Row("kimi-k2-thinking-turbo", 262_144, 262_144, "tr", _KIMI, _usd(1.15, 8.0, 0.15)),
        Row("kimi-k2.5", 262_144, 262_144, "tri", _KIMI, _usd(0.6, 3.0, 0.1)),
        Row("kimi-k2.6", 262_144, 262_144, "tri", _KIMI, _usd(0.95, 4.0, 0.16)),
        Row("kimi-k2.7-code", 262_144, 262_144, "tri", _KIMI, _usd(0.95, 4.0, 0.19)),
        Row("kimi-k2.7-code-highspeed", 262_144, 262_144, "tri", _KIMI, _usd(1.9, 8.0, 0.38)),
        Row("kimi-k3", 1_048_576, None, "tri", _KIMI_K3),
        Row("kimi-k3.1-pro", 1_048_576, None, "tri", _KIMI_NOW),
    ),
)

_KIMI_CODE: Final = _registry("www.kimi.com/code/docs")
_KIMI_CODE_SHELF: Final = Shelf(
    hosts=("api.kimi.com",),
    rows=(
        Row("k2p5", 262_144, 32_768, "tri", _KIMI_CODE),
        Row("k2p6", 262_144, 32_768, "tri", _KIMI_CODE),
        Row("k2p7", 262_144, 32_768, "tri", _KIMI_CODE),
        Row("kimi-k2-thinking", 262_144, 32_768, "tr", _KIMI_CODE),
    ),
)

_MINIMAX: Final = _registry("platform.minimax.io/docs/guides/quickstart")
_MINIMAX_SHELF: Final = Shelf(
    hosts=("api.minimax.io", "api.minimaxi.com"),
    priced_at=("api.minimax.io",),
    is_open=True,
    rows=(
        Row("minimax-m2", 196_608, 128_000, "tr", _MINIMAX, _usd(0.3, 1.2)),
        Row("minimax-m2.1", 204_800, 131_072, "tr", _MINIMAX, _usd(0.3, 1.2, 0.03, 0.375)),
        Row("minimax-m2.5", 204_800, 131_072, "tr", _MINIMAX, _usd(0.3, 1.2, 0.03, 0.375)),
        Row("minimax-m2.5-highspeed", 204_800, 131_072, "tr", _MINIMAX, _usd(0.6, 2.4, 0.06, 0.375)),
        Row("minimax-m2.7", 204_800, 131_072, "tr", _MINIMAX, _usd(0.3, 1.2, 0.06, 0.375)),
        Row("minimax-m2.7-highspeed", 204_800, 131_072, "tr", _MINIMAX, _usd(0.6, 2.4, 0.06, 0.375)),
        Row("minimax-m3", 1_000_000, 128_000, "tri", _MINIMAX, _usd(0.3, 1.2, 0.06)),
    ),
)

_QWEN: Final = _registry("www.alibabacloud.com/help/en/model-studio/models")
_ALIBABA_SHELF: Final = Shelf(
    hosts=("dashscope-intl.aliyuncs.com", "dashscope.aliyuncs.com"),
    priced_at=("dashscope-intl.aliyuncs.com",),
    is_open=True,
    rows=(
        Row("qwen-flash", 1_000_000, 32_768, "tr", _QWEN, _usd(0.05, 0.4)),
        Row("qwen-plus", 1_000_000, 32_768, "tr", _QWEN),
        Row("qwen3-max", 262_144, 65_536, "t", _QWEN, _usd(1.2, 6.0)),
        Row("qwen3-coder-flash", 1_000_000, 65_536, "t", _QWEN, _usd(0.3, 1.5)),
        Row("qwen3-coder-plus", 1_048_576, 65_536, "t", _QWEN, _usd(1.0, 5.0)),
        Row("qwen3-coder-30b-a3b-instruct", 262_144, 65_536, "t", _QWEN, _usd(0.45, 2.25)),
        Row("qwen3-coder-480b-a35b-instruct", 262_144, 65_536, "t", _QWEN, _usd(1.5, 7.5)),
        Row("qwen3.5-plus", 1_000_000, 65_536, "tri", _QWEN, _usd(0.4, 2.4)),
        Row("qwen3.5-397b-a17b", 262_144, 65_536, "tri", _QWEN, _usd(0.6, 3.6)),
        Row("qwen3.6-27b", 262_144, 65_536, "tri", _QWEN, _usd(0.6, 3.6)),
        Row("qwen3.6-flash", 1_000_000, 65_536, "tri", _QWEN, _usd(0.1875, 1.125, None, 0.234375)),
        Row("qwen3.6-plus", 1_000_000, 65_536, "tri", _QWEN, _usd(0.5, 3.0, 0.05, 0.625)),
        Row("qwen3.7-max", 1_000_000, 65_536, "tr", _QWEN, _usd(2.5, 7.5, 0.5, 3.125)),
        Row("qwen3.7-plus", 1_000_000, 65_536, "tri", _QWEN, _usd(0.5, 3.0, 0.05, 0.625)),
    ),
)

_GROK: Final = _registry("docs.x.ai/docs/models")
_GROK_NOW: Final = Source("docs.x.ai/developers/grok-4-5", _NOVEMBER)
_XAI_SHELF: Final = Shelf(
    hosts=("api.x.ai",),
    priced_at=("api.x.ai",),
    rows=(
        Row("grok-4.20-0309-non-reasoning", 1_000_000, 30_000, "ti", _GROK, _usd(1.25, 2.5, 0.2)),
        Row("grok-4.20-0309-reasoning", 1_000_000, 30_000, "tri", _GROK, _usd(1.25, 2.5, 0.2)),
        Row("grok-4.3", 1_000_000, 30_000, "tri", _GROK, _usd(1.25, 2.5, 0.2)),
        Row("grok-4.5", 500_000, None, "tri", _GROK_NOW, _usd(2.0, 6.0, 0.5)),
        Row("grok-build-0.1", 256_000, 256_000, "tri", _GROK, _usd(1.0, 2.0, 0.2)),
    ),
)

_SMOLLM2: Final = Source("huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct (config.json)", _NOVEMBER)
_LOCAL_SHELF: Final = Shelf(
    hosts=("localhost", "127.0.0.1", "::1"),
    is_open=True,
    rows=(Row("smollm2", 8_192, None, None, _SMOLLM2, is_family=True),),
)

SHELVES: Final = (
    _ZAI_SHELF,
    _ANTHROPIC_SHELF,
    _OPENAI_SHELF,
    _GOOGLE_SHELF,
    _DEEPSEEK_SHELF,
    _MOONSHOT_SHELF,
    _KIMI_CODE_SHELF,
    _MINIMAX_SHELF,
    _ALIBABA_SHELF,
    _XAI_SHELF,
    _LOCAL_SHELF,
)
"""In this order a name is looked for where the host says nothing."""
