"""Chile's regions by their official codes, and how sources write them."""

from __future__ import annotations

import unicodedata

REGIONS = {
    "15": "Arica y Parinacota",
    "01": "Tarapacá",
    "02": "Antofagasta",
    "03": "Atacama",
    "04": "Coquimbo",
    "05": "Valparaíso",
    "13": "Metropolitana de Santiago",
    "06": "Libertador General Bernardo O'Higgins",
    "07": "Maule",
    "16": "Ñuble",
    "08": "Biobío",
    "09": "La Araucanía",
    "14": "Los Ríos",
    "10": "Los Lagos",
    "11": "Aysén del General Carlos Ibáñez del Campo",
    "12": "Magallanes y de la Antártica Chilena",
}
"""Code and name, from north to south."""


def region_code(text: str) -> str | None:
    """Return the code of a region as people write it: with "Región de", without accents, shortened."""
    wanted = _plain(text)
    for prefix in ("region ", "del ", "de ", "la "):
        wanted = wanted.removeprefix(prefix)
    if not wanted:
        return None
    return next((code for code, name in _PLAIN.items() if name.startswith(wanted)), None)


def _plain(text: str) -> str:
    letters = unicodedata.normalize("NFKD", text.strip().lower())
    return "".join(each for each in letters if not unicodedata.combining(each))


_PLAIN = {code: _plain(name).removeprefix("la ") for code, name in REGIONS.items()}
