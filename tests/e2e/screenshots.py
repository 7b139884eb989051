"""Makes the pictures of every page for the documentation: python -m tests.e2e.screenshots [DIRECTORY]."""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, ViewportSize

from holdfast.app import Holdfast
from tests.e2e.afternoon import Afternoon
from tests.e2e.chromium import find_chromium, launched
from tests.e2e.serving import served

DEFAULT = Path(__file__).parents[2] / "docs" / "images"
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 390, "height": 780}


def paths(afternoon: Afternoon) -> dict[str, str]:
    """The address of each picture."""
    report, dead = afternoon.report, afternoon.failed[-1]
    return {
        "overview": "/",
        "jobs": "/jobs",
        "job": f"/jobs/{dead}",
        "chain": f"/chains/{report}",
        "chain-time": f"/chains/{report}?view=time",
        "types": "/types",
        "type": "/types/mail.send#week",
        "workers": "/workers?all=yes",
        "cycles": "/cycles",
        "cycle": "/cycles/reconcile",
        "archive": "/archive",
        "dead": "/dead",
        "system": "/system",
        "tail": "/tail",
        "audit": "/audit",
    }


# The database's address is in the pictures; it should not name a place of the machine they were made on.
WITHOUT_PLACE = """(place) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.nodeValue = texts.currentNode.nodeValue.replaceAll(place, "");
}"""


def take(browser: Browser, address: str, pictures: dict[str, str], target: Path, place: str) -> int:
    """Take each picture in light and dark, and the first two as a phone shows them; return how many."""
    views = [(f"-{scheme}", scheme, WIDE) for scheme in ("light", "dark")]
    views.append(("-phone", "light", PHONE))
    count = 0
    for suffix, scheme, size in views:
        context = browser.new_context(base_url=address, viewport=size)
        page = context.new_page()
        page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
        for name, path in list(pictures.items())[: None if size is WIDE else 2]:
            page.goto(path)
            page.locator("#live[data-mode=on], #live[hidden]").wait_for(state="attached")
            page.evaluate(WITHOUT_PLACE, place)
            page.screenshot(path=target / f"{name}{suffix}.png")
            count += 1
        context.close()
    return count


def main() -> int:
    """Fill a database, serve it, take the pictures."""
    chromium = find_chromium()
    if chromium is None:
        print("Chromium was not found. Run: make setup-system", file=sys.stderr)
        return 1
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        app = Holdfast(f"sqlite:///{directory}/shop.db", open_types=True)
        app.migrate()
        afternoon = Afternoon(app.database)
        afternoon.fill()
        with served(app) as address, launched(chromium) as browser:
            count = take(browser, address, paths(afternoon), target, f"{directory}/")
        app.close()
    print(f"{count} pictures in {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
