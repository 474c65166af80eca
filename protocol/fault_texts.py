"""What providers say, by what they mean: one pattern a meaning, for the table of faults. All match lower-case text.

A pattern joins words that stand close to each other; the text may echo a request, in which any word may occur.
"""

from __future__ import annotations

import re
from typing import Final


def _any(*phrases: str) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(phrase) for phrase in phrases))


def _either(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.ASCII)


_NO: Final = (
    r"(?:not (?:supported|permitted|allowed|available|recognized|valid|enabled)|unsupported|unknown|unrecognized"
    r"|unexpected|extra inputs|invalid|a maximum of|must not|may not be|input should be|does not match any of)"
)
_THOUGHT: Final = (
    r"(?<![\w.-])(?:reasoning_effort|reasoning\.effort|reasoning|thinking|enable_thinking|thinking_budget|output_config)"
    r"(?!\w)"
)
_CACHE: Final = r"(?:cache_control|prompt_cache_key|prompt_cache_retention|cache_?point)"
_LEVEL: Final = r"['\"`](?:minimal|low|medium|high|xhigh|max)['\"`]"
_TOOL_NAME: Final = r"(?:\b(?:tools?|function|tool_choice)\b[^\n]{0,60}\bname\b|\b(?:tool|function)[ _]names?\b)"

# --- what can be mended ----------------------------------------------------------------------------------------------

IMAGE: Final = _either(
    r"\bimage\b.{0,60}\b(?:too large|too big|exceeds?|corrupt\w*|could not be (?:read|processed|decoded))",
    r"could not process image|(?:invalid|unsupported|unreadable) (?:base64 )?image",
    r"(?:does not|doesn't|do not) support image|image input is not supported|unknown variant `image_url`",
)
SIGNATURE: Final = _either(
    r"\b(?:invalid|missing|corrupted|unverifiable)\b.{0,40}\b(?:thought_)?signature\b.{0,60}\b(?:thinking|reasoning)",
    r"\b(?:thinking|reasoning)\b.{0,60}\bsignature\b.{0,60}\b(?:invalid|required|missing|mismatch|not valid)",
    r"\bsignature\b.{0,40}\bin `?thinking`? block|thought[_ ]signature",
    r"encrypted[_ ]content\b.{0,80}\b(?:could not|invalid|verif|decrypt|not valid)|invalid[_ ]encrypted[_ ]content",
    r"(?:thinking|redacted_thinking)`? blocks?\b.{0,80}\bcannot be modified",
    r"thinking is disabled, an `?assistant`? message|thinking blocks, the first block must be",
    r"blocks must match the parameters",
    r"of type 'reasoning' was provided without|item with id 'rs_\w{1,80}' not found",
)
MANDATORY: Final = _either(
    rf"{_THOUGHT}.{{0,60}}\b(?:is mandatory|is required|must be enabled|can ?not be (?:disabled|turned off))",
    r"only works in thinking mode|only supports thinking mode",
    r"(?:does not|doesn't) support (?:disabling|turning off) (?:reasoning|thinking)",
    r"(?:disabling|turning off) (?:reasoning|thinking) is not",
    r"(?:unsupported|invalid) value: ['\"`](?:none|disabled)['\"`](?s:.{0,240})(?:reasoning|thinking|effort)",
    rf"{_THOUGHT}.{{0,60}}['\"`](?:none|disabled)['\"`].{{0,40}}{_NO}",
)
"""Thinking may not be switched off."""
EFFORT: Final = _either(
    rf"{_THOUGHT}['\"`]?.{{0,60}}{_NO}",
    rf"\b{_NO}\b.{{0,60}}{_THOUGHT}",
    r"(?:does not|doesn't) support (?:the |)(?:reasoning|thinking|effort)|encrypted content is not supported",
    rf"(?:unsupported|invalid) value: {_LEVEL}(?s:.{{0,240}})(?:reasoning|thinking|effort)",
    rf"(?:reasoning|effort)\b.{{0,80}}{_LEVEL}.{{0,60}}{_NO}",
    r"must start with a thinking block|must be greater than `?thinking\.budget_tokens",
    r"reasoning_content\b.{0,80}\b(?:missing|must be passed)",
)
"""An effort, or any word about thinking, is not accepted."""
LEVEL: Final = re.compile(_LEVEL)
CACHE: Final = _either(
    rf"{_CACHE}\b[^\n]{{0,160}}{_NO}", rf"{_NO}[^\n]{{0,120}}{_CACHE}", r"no endpoints found that support cache control"
)
SCHEMA: Final = _either(
    r"failed to (?:parse|initialize|compile) grammar|error parsing grammar|json schema conversion failed",
    r"pattern must start with '\^' and end with '\$'|unrecognized schema",
    r"invalid schema for function|input_schema: json schema is invalid|not a valid moonshot flavored json schema",
    r"unknown name \\?\"(?:pattern|format|additionalproperties|\$schema|const|anyof)\\?\"",
    r"only 'enum' and 'date-time' are supported",
)
NAME: Final = _either(
    rf"{_TOOL_NAME}[^\n]{{0,80}}\b(?:pattern|reserved|invalid|not allowed|must (?:start|match|only contain)|too long)",
    rf"\b(?:invalid|reserved|illegal)\b.{{0,20}}{_TOOL_NAME}",
    r"expected a string that matches the pattern[^\n]{0,200}\nparam: "
    r"[^\n]{0,60}(?:tools?|function|tool_calls)\b[^\n]{0,40}\bname",
)
ROLES: Final = _either(
    r"(?:roles?|messages|turns|requests) (?:must|should) (?:strictly )?alternate|must alternate between",
    r"alternate between (?:user|'user')|ensure that multiturn requests alternate",
    r"(?:consecutive|adjacent|successive) (?:messages|turns|`?\w{1,12}`? messages)\b.{0,60}\b(?:same role|not|must)",
    r"function call turn comes immediately after",
)
MALFORMED: Final = _any(
    "must have non-empty content",
    "messages must have non-empty",
    "invalid_request_body",
    "text content blocks must be non-empty",
    "content field is required",
    "at least one message is required",
    "no user query found",
    "must be followed by tool messages",
    "must be a response to a preceding message with 'tool_calls'",
    "must be a response to a preceeding message with 'tool_calls'",
    "did not have response messages",
    "tool_use` ids were found without `tool_result`",
    "block must have a corresponding `tool_result`",
    "unexpected `tool_use_id`",
    "malformed tool arguments",
    "invalid function arguments json string",
    "tool_use.id: string should match pattern",
    "消息不能为空",
)
# --- too much --------------------------------------------------------------------------------------------------------

OVERFLOW: Final = _either(
    re.escape("tokens in request more than max tokens allowed"),
    r"prompt exceeds max length|prompt is too long|prompt too long|input is too long|maximum prompt length",
    # Not followed by what an offer says: the context length of a model is no complaint.
    r"context (?:length|size|window|limit)|maximum context|max_model_len|maximum model length|slot context",
    r"maximum allowed input length|range of input length|input token count|too many input tokens",
    r"input tokens? exceeds?|exceeded model token limit|prompt token count of",
    r"`inputs` (?:tokens|must have less)|total number of tokens in the prompt cannot exceed",
    r"reduce the length of|long[- ]context (?:beta|requests)",
    r"超过最大长度|上下文长度|输入长度超",
)
ONE_TOO_LARGE: Final = _either(r"request too large for\b.{0,200}\b(?:tokens per min|tpm)")
"""A single request above what a minute allows: no wait helps."""
LONG_CONTEXT: Final = _any("extra usage is required for long context", "long context beta is not yet available")
NO_MEMORY: Final = _any("memory guard", "out of memory", "insufficient memory")

# --- the account -----------------------------------------------------------------------------------------------------

AFFORD: Final = _either(r"can only afford \d")
BILLING: Final = _any(
    "insufficient balance",
    "insufficient credits",
    "insufficient_quota",
    "credit balance",
    "credits exhausted",
    "top up your credits",
    "no resource package",
    "payment required",
    "billing hard limit",
    "exceeded your current quota",
    "out of funds",
    "can only afford",
    "balance_depleted",
    "budget limit exceeded",
    "spending-limit",
    "spending limit",
    "余额不足",
    "账户欠费",
)
NOT_IN_PLAN: Final = _any(
    "plan does not include",
    "plan does not yet include",
    "not available on the free tier",
    "not included in your plan",
    "not supported when using codex with a chatgpt account",
    "暂未开放",
)
WINDOW: Final = _any("usage limit reached for", "limit exhausted", "will reset at", "使用上限", "限额将在")
SOON: Final = _either(r"(?:try again|retry) (?:in|after)\b|\bresets? (?:in|at|after)\b")
FAIR_USE: Final = _any("fair usage policy", "fair use policy", "公平使用政策")
KEY: Final = _any("api key not valid", "api_key_invalid", "invalid api key", "incorrect api key", "invalid x-api-key")

# --- load ------------------------------------------------------------------------------------------------------------

RELAYED: Final = _either(
    r"provider returned error|rate[- ]limited upstream|upstream (?:provider )?(?:is )?(?:rate[- ]limit|temporarily)"
)
CONCURRENCY: Final = _any(
    "high concurrency",
    "too many concurrent",
    "concurrent connections",
    "concurrency limit",
    "reduce concurrency",
    "并发",
)
OVERLOADED: Final = _any(
    "overloaded", "at capacity", "over capacity", "server overload", "no capacity", "访问量过大", "loading model"
)
RATE: Final = _any(
    "rate limit",
    "rate_limit",
    "too many requests",
    "per minute",
    "throttl",
    "resource exhausted",
    "速率限制",
    "频率过高",
)
PASSING: Final = _any("please retry later", "try again later", "network error", "请稍后重试", "请稍后再试")
TIMED_OUT: Final = _any("timed out", "timeout")

# --- the model, the endpoint -----------------------------------------------------------------------------------------

NOBODY_MAY: Final = _any(
    "matching your data policy", "guardrail restrictions", "privacy settings", "blocked by provider policy"
)
NO_MODEL: Final = _either(
    r"\bmodel\b.{0,200}\b(?:not found|not exist|is not available)",
    r"no such model|unknown model|model_not_found|no endpoints found|is not a valid model id|模型不存在",
)
POLICY: Final = _any(
    "content_filter", "content filter", "responsibleaipolicy", "unsafe or sensitive", "new_sensitive", "敏感内容"
)
WALL: Final = _any("<html", "<!doctype", "cloudflare", "access denied")
AUTH: Final = _any("invalid api key", "incorrect api key", "authentication", "unauthorized", "token expired")
