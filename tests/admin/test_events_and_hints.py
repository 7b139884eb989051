"""Observers hear of what commands change after it is committed, and workers of what concerns them."""

from holdfast.admin.service import Service
from holdfast.app import Holdfast
from holdfast.core.cycle import NewCycle
from holdfast.core.events import Event
from holdfast.notify.base import Hint, cycle_hint
from holdfast.settings import read_settings
from tests.admin.conftest import OPERATOR
from tests.cli.scene import Scene
from tests.client.conftest import Heard


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


async def test_workers_hear_at_once_of_a_drain_and_of_a_cycle_that_goes_on(sqlite_url: str) -> None:
    heard = Heard()
    app = Holdfast(sqlite_url, notifier=heard)
    app.migrate()
    Scene(app.database).worker("mail", id="w-7")
    nightly = NewCycle("nightly", "17 3 * * *", "UTC", True, "last")
    app.database.run(app.database.store.cycles.register([nightly]))
    service = Service(app, read_settings({}))
    await service.workers.drain(OPERATOR, "w-7")
    await service.cycles.pause(OPERATOR, "nightly")
    await service.cycles.resume(OPERATOR, "nightly")
    assert heard.hints == [Hint("lost", worker="w-7"), cycle_hint("nightly")]
    await app.aclose()
