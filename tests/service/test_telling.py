"""Observers of an application hear of what commands change, after it is committed."""

from holdfast.app import Holdfast
from holdfast.core.events import Event
from holdfast.service.service import Service
from tests.cli.scene import Scene
from tests.service.conftest import OPERATOR


class Witness:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event) -> None:
        self.events.append(event)


async def test_cancelling_and_retrying_are_told(
    app: Holdfast, service: Service, scene: Scene
) -> None:
    witness = Witness()
    app.observe(witness)
    failed, waiting, chain = scene.failed(), scene.start(), scene.start()
    await service.jobs.cancel(OPERATOR, [waiting])
    await service.chains.cancel(OPERATOR, chain)
    await service.jobs.retry(OPERATOR, [failed])
    told = [(each.name, each.fields["job_id"]) for each in witness.events]
    assert told == [("job_cancelled", waiting), ("job_cancelled", chain), ("job_redriven", failed)]
    assert witness.events[0].fields["reason"] == "because"
