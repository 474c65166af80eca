"""Requests that are refused whatever the load: what singles one out, and what does not."""

from __future__ import annotations

from covey.actors.limits.suspects import FAILURES, PASSES, Suspects


def fail(suspects: Suspects, work: str | None, at: float) -> bool:
    return suspects.overloaded(work, at, "overloaded", at + 0.5)


def singled_out(suspects: Suspects, work: str = "poison", *, failures: int = FAILURES, passes: int = PASSES) -> None:
    """Let it fail so often while so many others pass."""
    fail(suspects, work, 0.0)
    for number in range(passes):
        suspects.passed(f"other {number}", 1.0 + number)
    for number in range(failures - 1):
        fail(suspects, work, 10.0 + number)


def test_one_that_fails_while_others_pass_is_refused() -> None:
    suspects = Suspects()

    singled_out(suspects)

    why = suspects.refused("poison")
    assert why is not None
    assert "refused 3 times" in why
    assert "3 other calls passed" in why


def test_too_few_failures_or_passes_refuse_nobody() -> None:
    for failures, passes in ((FAILURES - 1, PASSES), (FAILURES, PASSES - 1)):
        suspects = Suspects()

        singled_out(suspects, failures=failures, passes=passes)

        assert suspects.refused("poison") is None


def test_calls_that_were_out_before_it_failed_say_nothing() -> None:
    suspects = Suspects()
    fail(suspects, "poison", 10.0)
    for _ in range(10):
        suspects.passed("other", 10.0)

    assert not fail(suspects, "poison", 20.0)
    assert not fail(suspects, "poison", 30.0)
    assert suspects.refused("poison") is None


def test_where_others_fail_too_it_is_the_load() -> None:
    suspects = Suspects()
    fail(suspects, "a", 0.0)
    for number in range(12):
        suspects.passed(f"passes {number}", 1.0 + number)
        fail(suspects, f"fails {number}", 1.0 + number)

    assert not fail(suspects, "a", 20.0)
    assert not fail(suspects, "a", 30.0)
    assert suspects.refused("a") is None


def test_from_the_second_failure_on_it_speaks_no_more_against_the_account() -> None:
    suspects = Suspects()

    assert not fail(suspects, "poison", 0.0)
    assert not fail(suspects, "poison", 1.0)
    suspects.passed("other", 2.0)
    assert fail(suspects, "poison", 3.0)


def test_one_that_passes_is_forgiven() -> None:
    suspects = Suspects()
    singled_out(suspects)
    suspects.passed("poison", 50.0)
    fail(suspects, "b", 60.0)
    suspects.passed("b", 70.0)

    assert suspects.refused("poison") is None
    assert not suspects.is_doubtful("b")


def test_a_person_forgives_all() -> None:
    suspects = Suspects()
    singled_out(suspects)
    fail(suspects, "b", 60.0)

    suspects.forget()

    assert (suspects.refused("poison"), suspects.is_doubtful("b")) == (None, False)


def test_calls_without_a_name_are_never_suspects() -> None:
    suspects = Suspects()
    for number in range(10):
        suspects.passed(None, number)
        assert not fail(suspects, None, number)

    assert (suspects.refused(None), suspects.is_doubtful(None)) == (None, False)


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    suspects = Suspects()
    for number in range(1000):
        singled_out(suspects, f"poison {number}")
        fail(suspects, f"doubtful {number}", 90.0)

    assert sum(suspects.refused(f"poison {number}") is not None for number in range(1000)) <= 256
    assert sum(suspects.is_doubtful(f"doubtful {number}") for number in range(1000)) <= 64
    assert suspects.is_doubtful("doubtful 999")
