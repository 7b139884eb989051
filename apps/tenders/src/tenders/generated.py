"""Tenders and devices that look real, the same ones every time: for the seed, the local sources and the tests."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from tenders.models import Installation, Preference
from tenders.regions import REGIONS
from tenders.sources.found import FoundTender

KINDS = {"L1": 2_000_000, "LE": 20_000_000, "LP": 90_000_000, "LR": 700_000_000}
"""Kinds of tenders, and about how much each is for."""

CATEGORIES = {
    "14": ("Resmas de papel carta y oficio", "Papel higiénico y toallas de papel"),
    "25": ("Arriendo de camionetas 4x4", "Mantención de vehículos municipales"),
    "30": ("Áridos para caminos vecinales", "Ventanas termopanel para escuela rural"),
    "42": ("Insumos médicos para CESFAM", "Ventiladores mecánicos", "Guantes de procedimiento"),
    "43": ("Notebooks para establecimientos", "Licencias de software", "Cámaras de seguridad"),
    "50": ("Alimentos para jardines infantiles", "Colaciones para operativo de terreno"),
    "72": ("Mejoramiento de plaza", "Reposición de veredas", "Construcción de sede vecinal"),
    "76": ("Servicio de aseo de dependencias", "Retiro de residuos hospitalarios"),
    "80": ("Asesoría técnica de obras", "Estudio de preinversión"),
    "86": ("Capacitación en primeros auxilios", "Curso de lengua de señas"),
}
"""Two digits of a category's code, and what is bought in it."""

_OFFICES = ("Municipalidad", "Hospital Regional", "Gobierno Regional", "Servicio de Salud")
_PLATFORMS = ("android", "ios")


def generate_tender(number: int, published_at: datetime) -> FoundTender:
    """Return a tender with all that can be known of it; the same number is the same tender."""
    dice = random.Random(f"tender {number}")
    region = dice.choice(list(REGIONS))
    category = dice.choice(list(CATEGORIES))
    kind = dice.choice(list(KINDS))
    title = dice.choice(CATEGORIES[category])
    office = dice.choice(_OFFICES)
    buyer = f"{office} de {REGIONS[region]}"
    return FoundTender(
        code=f"{dice.randrange(1_000, 9_999)}-{number}-{kind}{published_at:%y}",
        sources=("api",),
        title=f"{title}, {REGIONS[region]}",
        description=f"{buyer} requiere: {title.lower()}, según bases administrativas y técnicas.",
        buyer=buyer,
        region=region,
        category=category,
        amount=dice.randrange(KINDS[kind] // 4, KINDS[kind] * 2) // 1_000 * 1_000,
        published_at=published_at,
        closes_at=published_at + timedelta(days=dice.randrange(5, 40)),
    )


@dataclass(frozen=True, slots=True)
class GeneratedDevice:
    """An installation with its preference."""

    installation: Installation
    preference: Preference


def generate_device(number: int) -> GeneratedDevice:
    """Return an installation and what it wants to hear of; the same number is the same device."""
    dice = random.Random(f"device {number}")
    id = UUID(int=dice.getrandbits(128), version=4)
    token = "".join(dice.choices("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789", k=22))
    installation = Installation(
        id=id, push_token=f"ExponentPushToken[{token}]", platform=dice.choice(_PLATFORMS)
    )
    preference = Preference(
        installation_id=id,
        is_enabled=dice.random() < 0.95,
        regions=_some(dice, list(REGIONS), 4),
        categories=_some(dice, list(CATEGORIES), 3),
        kinds=_some(dice, list(KINDS), 2),
        amount_min=dice.choice([None, None, 1_000_000, 10_000_000]),
        amount_max=dice.choice([None, None, None, 500_000_000]),
    )
    return GeneratedDevice(installation, preference)


def _some(dice: random.Random, codes: list[str], most: int) -> frozenset[str] | None:
    """Choose a few codes, or all of them, as one in four does."""
    if dice.random() < 0.25:
        return None
    return frozenset(dice.sample(codes, dice.randint(1, most)))
