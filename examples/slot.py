"""A program of yours that makes its own calls, under the limit it shares with everything else on this machine.

    python examples/slot.py BASE_URL MODEL [QUESTION ...]

`max_concurrent` in config.yaml counts for the provider with this base URL, over all programs and agents; one that is
not configured there has no limit. Every call is kept in state.db with what it cost.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import httpx

from covey import Fleet

QUESTIONS = ["Say hello in one sentence.", "Name one animal that can fly.", "Write one short sentence about geese."]


def ask(fleet: Fleet, base_url: str, model: str, question: str) -> str:
    """One call: wait for a slot, ask, say what it cost, give the slot back."""
    key = os.environ.get("API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    with fleet.slot(base_url, model=model, api_key=key) as slot:
        response = httpx.post(
            f"{base_url}/chat/completions",
            headers={**headers, "X-Client-Request-Id": slot.call},
            json={"model": model, "max_tokens": 64, "messages": [{"role": "user", "content": question}]},
            timeout=120,
        )
        answer = response.raise_for_status().json()
        slot.record_usage(answer.get("usage"), model=answer.get("model"), response_id=answer.get("id"))
    return str(answer["choices"][0]["message"]["content"])


def main(base_url: str, model: str, *questions: str) -> None:
    """Ask all questions at once: who waits for whom is the fleet's business."""
    with Fleet.connect(name="slot.py") as fleet, ThreadPoolExecutor() as threads:
        for text in threads.map(lambda question: ask(fleet, base_url, model, question), questions or QUESTIONS):
            print(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
