"""What an error's text shows of where it came from."""

from collections.abc import Callable

from holdfast.worker import resolve_outcome
from holdfast.worker.handler_threads import call_catching
from holdfast.worker.resolve_outcome import format_stack


def fail() -> None:
    raise ValueError("deep down")


def raised(call: Callable[[], None]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def test_a_stack_begins_with_the_handler_and_not_with_us() -> None:
    _, error = call_catching(fail)
    assert error is not None
    assert "calls.py" not in format_stack(error)
    assert "in fail" in format_stack(error)


def test_a_cause_is_shown_with_the_error_it_led_to() -> None:
    def wrapped() -> None:
        try:
            fail()
        except ValueError as error:
            raise RuntimeError("the report is broken") from error

    text, _ = resolve_outcome.describe_error(raised(wrapped))
    assert text.startswith("RuntimeError: the report is broken")
    assert "ValueError: deep down" in text


def test_a_group_shows_the_errors_within_it() -> None:
    def grouped() -> None:
        raise ExceptionGroup("two parts failed", [raised(fail), KeyError("lost")])

    text, _ = resolve_outcome.describe_error(raised(grouped))
    assert "ValueError: deep down" in text
    assert "KeyError: 'lost'" in text


def test_a_suppressed_context_is_not_shown() -> None:
    def replaced() -> None:
        try:
            fail()
        except ValueError:
            raise RuntimeError("the report is broken") from None

    text, _ = resolve_outcome.describe_error(raised(replaced))
    assert "deep down" not in text
