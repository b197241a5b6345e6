"""A longer text for prompts of thousands of tokens: several languages, code, tables; nothing copied."""

# ruff: noqa: RUF001  # scripts with letters like Latin ones

from __future__ import annotations

PASSAGES = (
    "A harbour town keeps two clocks. The one on the church is wound by hand and loses a minute a "
    "day; the one on the customs house is set by radio and is never wrong. People use the first "
    "for dinner and the second for the ferry, and nobody has ever missed either because of it.",
    "To plant a tree, dig a hole twice as wide as the roots and no deeper. Loosen the soil at the "
    "sides, set the tree upright, fill in half of the earth, water it, and fill in the rest. Mulch "
    "keeps the water in, but it must not touch the trunk.",
    "def moving_average(values, width):\n    total, found = 0.0, []\n    for index, value in "
    "enumerate(values):\n        total += value\n        if index >= width:\n            total -= "
    "values[index - width]\n        if index >= width - 1:\n            found.append(total / "
    "width)\n    return found\n",
    "En invierno el río baja despacio y claro. Los pescadores salen antes de que amanezca, y "
    "cuando vuelven al mercado las calles todavía están vacías. Una mujer vende pan caliente junto "
    "al puente.",
    "The train from the north arrives at 7:42, at 9:15 and at 12:30. On Sundays there is no train "
    "before ten. A ticket costs 4.80 with a card and 5.20 in cash; children under six travel free.",
    "Wer einen Turm bauen will, rechnet zuerst nach: Zwölf Meter hoch, vier Meter breit, "
    "dreitausend Ziegel, sechs Wochen Arbeit. Danach fragt er die Nachbarn, ob ihnen der Schatten "
    "nichts ausmacht.",
    "| city | 2001 | 2011 | 2021 |\n|---|---|---|---|\n| Arlen | 41200 | 43850 | 47010 |\n| Brask "
    "| 18300 | 17950 | 17100 |\n| Corrow | 9200 | 12400 | 19800 |\n",
    "Le vieux moulin ne tourne plus depuis que la rivière a changé de lit. On y a installé une "
    "bibliothèque : trois pièces, un poêle, deux mille livres, et un chat qui dort sur les atlas.",
    "for (int row = 0; row < rows; ++row) {\n  double sum = 0.0;\n  for (int col = 0; col < cols; "
    "++col) {\n    sum += matrix[row * cols + col] * vector[col];\n  }\n  result[row] = sum;\n}\n",
    "山の上の小さな駅には、一日に三本しか列車が来ない。駅長は花に水をやり、時計を合わせ、次の列車を待つ。",
    "If two lines are parallel to a third, they are parallel to each other. If a number is "
    "divisible by six, it is divisible by two and by three. The sum of the first n odd numbers is "
    "n squared: 1 + 3 + 5 + 7 = 16.",
    "Осенью дорога к озеру покрыта листьями. Лодки вытащены на берег, вода холодная и тёмная, и "
    "только старый рыбак ещё сидит у костра и чинит сеть.",
    '{"name": "sensor-7", "unit": "celsius", "samples": [21.4, 21.6, 21.9, 22.3], "valid": true, '
    '"note": null}',
    "Bread needs four things: flour, water, salt and time. Mix five hundred grams of flour with "
    "three hundred and fifty of water and ten of salt, let it rest, fold it, let it rise, and bake "
    "it hot until the crust is dark. Everything else is patience.",
    "في المدينة القديمة سوق ضيق يبيع فيه التجار الورق والحبر. كل مساء يغلقون الأبواب معا ويشربون الشاي.",
    "The committee met on the third of March. It was agreed that the bridge would be closed for "
    "repairs from June to August, that buses would take the longer way, and that the costs, "
    "estimated at 1.2 million, would be shared in equal parts by the two towns.",
    "SELECT region, SUM(amount) AS total FROM orders JOIN customers USING (customer_id) WHERE "
    "placed >= DATE '2023-01-01' GROUP BY region HAVING SUM(amount) > 10000 ORDER BY total DESC;",
    "Água mole em pedra dura, tanto bate até que fura, dizia a avó, e voltava a regar as plantas "
    "da varanda, uma por uma, como se cada uma fosse a única.",
    "Light takes about eight minutes from the sun to the earth and a little over a second from the "
    "moon. A letter by ship once took three months to the other side of the world, and the answer "
    "another three.",
    "हर सुबह स्कूल के बाहर एक बूढ़ा आदमी रंगीन पतंगें बेचता है। बच्चे उसे नाम से जानते हैं और वह उन्हें।",
    "She counted the steps: forty-one up to the gallery, nineteen more to the lantern. From there "
    "one could see the whole coast, the white line of the surf, the islands one behind the other, "
    "and on clear days the mountains of the next country, thin as paper.",
    "import re\n\nPATTERN = re.compile(r'^(\\d{4})-(\\d{2})-(\\d{2})$')\n\ndef parts(text):\n    "
    "match = PATTERN.match(text)\n    return tuple(map(int, match.groups())) if match else None\n",
    "Il mercato del sabato comincia presto. Prima arrivano i formaggi, poi la frutta, poi i fiori, "
    "e per ultimo il venditore di orologi, che dice sempre di essere in anticipo.",
    "서울의 겨울 아침은 차갑고 맑다. 사람들은 따뜻한 국물을 마시고 서둘러 지하철역으로 걸어간다.",
)
"""Some two thousand tokens for most tokenizers; what is missing is taken from the start again."""
