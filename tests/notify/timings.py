"""An impatient listener, so that tests of losses need not wait long."""

from holdfast.notify.server_notifier import ListenerTimings

FAST = ListenerTimings(
    prove_every_s=0.05, answer_within_s=2.0, retry_first_s=0.005, retry_cap_s=0.05
)
