"""The texts that every comparison runs: several scripts and languages, numbers and code."""

from __future__ import annotations

TEXTS = (
    "The lighthouse keeper wrote down the weather every evening, even on the days when nothing had changed.",
    "def mean(values):\n    total = sum(values)\n    return total / len(values) if values else 0.0\n",
    "La lluvia cae despacio sobre los tejados del pueblo; nadie tiene prisa esta tarde.",
    "Zwischen 1990 und 2024 stieg die Zahl um 37,5 %, also von 12.480 auf 17.160.",
    "春天来了，河边的柳树又长出了新叶。",  # noqa: RUF001  # Chinese has its own comma
    "SELECT city, COUNT(*) FROM visits WHERE year >= 2020 GROUP BY city;",
    "В начале было слово, и слово это записали.",  # noqa: RUF001  # Russian
    "The derivative of x**3 - 2*x is 3*x**2 - 2, so the slope at x = 2 is 10.",
)
"""In this order, one after the other, until the sequence is full."""
