"""No event of the catalogue is forgotten by any observer."""

import logging

from prometheus_client import CollectorRegistry

from holdfast.observe.logging import CATALOGUE, LoggingObserver
from holdfast.observe.metrics import MEASURED
from holdfast.observe.prometheus import PrometheusObserver
from holdfast_otel import OtelObserver
from tests.observe.samples import UNMEASURED


def test_every_event_measures_something_or_is_named_as_one_that_does_not() -> None:
    assert set(CATALOGUE) == MEASURED | UNMEASURED
    assert not MEASURED & UNMEASURED


def test_observers_want_what_they_measure_and_a_log_everything_it_is_set_to() -> None:
    prometheus, otel = PrometheusObserver(CollectorRegistry()), OtelObserver()
    assert set(filter(prometheus.wants, CATALOGUE)) == MEASURED
    assert set(filter(otel.wants, CATALOGUE)) == MEASURED | {"job_created"}
    logger = logging.Logger("all", logging.DEBUG)
    assert set(filter(LoggingObserver(logger).wants, CATALOGUE)) == set(CATALOGUE)


def test_what_happens_each_second_is_not_logged_by_default() -> None:
    assert CATALOGUE["tick_finished"].level == "debug"
