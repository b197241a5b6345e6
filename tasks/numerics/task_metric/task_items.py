"""Questions with a right and wrong continuations, made by a recipe: the same everywhere, of no data set.

Six kinds of some forty: facts, opposites, agreement of subject and verb, order of days, months and numbers,
copying a list that was seen before, and what word fits a scene.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_SEED = 20261130
TASK = "day0_choices"


@dataclass(frozen=True)
class Item:
    """One question.

    Attributes:
        kind: of the six.
        context: what stands before.
        choices: continuations, each with its leading space, in an order of no meaning.
        answer: place of the right one.
    """

    kind: str
    context: str
    choices: Sequence[str]
    answer: int


_CAPITALS = (
    "France Paris,Italy Rome,Spain Madrid,Germany Berlin,Japan Tokyo,Russia Moscow,Greece Athens,"
    "Egypt Cairo,China Beijing,England London,Austria Vienna,Ireland Dublin,Portugal Lisbon,"
    "Poland Warsaw,Cuba Havana,Sweden Stockholm,Norway Oslo,Peru Lima,Kenya Nairobi,Canada Ottawa"
)
_FACTS = (
    "The opposite of north is| south| east| west;The color of grass is| green| blue| red;"
    "The color of snow is| white| black| green;A baby dog is called a| puppy| kitten| calf;"
    "A baby cat is called a| kitten| puppy| lamb;Bees make| honey| milk| bread;"
    "Cows give us| milk| honey| oil;The sun rises in the| east| west| north;"
    "The sun sets in the| west| east| south;Ice is frozen| water| air| sand;"
    "Fish live in| water| trees| sand;Birds can| fly| read| drive;"
    "A triangle has three| sides| wheels| eyes;A bicycle has two| wheels| doors| wings;"
    "We see with our| eyes| ears| hands;We hear with our| ears| eyes| feet;"
    "We smell with our| nose| hands| ears;Water boils when it is very| hot| cold| dark;"
    "The Earth goes around the| Sun| Moon| sea;The Moon goes around the| Earth| Sun| sea;"
    "In winter the weather is| cold| green| loud;"
    "A person who teaches is called a| teacher| doctor| farmer;"
    "A person who flies a plane is a| pilot| baker| nurse"
)
_OPPOSITES = (
    "hot cold,big small,up down,left right,day night,black white,good bad,old new,fast slow,high low,"
    "open closed,hard soft,light dark,rich poor,happy sad,long short,wet dry,full empty,early late,"
    "near far,strong weak,young old,first last,buy sell,love hate,true false,inside outside,win lose,"
    "push pull,clean dirty,thick thin,wide narrow,loud quiet,male female,north south,begin end,give take,"
    "laugh cry,above below,more less"
)
_SINGULAR = "key,dog,boy,car,book,girl,teacher,house,tree,child"
_PLURAL = {"child": "children"}
_MIDDLE = ("near the window", "with the red hat", "in the garden", "from the city", "behind the old house")
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
    "November", "December",
)  # fmt: skip
_NUMBERS = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen", "twenty",
)  # fmt: skip
_WORDS = (
    "apple,river,stone,house,green,table,music,paper,chair,water,light,horse,bread,cloud,glass,silver,"
    "garden,window,summer,yellow,market,engine,letter,doctor,forest,island,bridge,mirror,candle,basket"
)
_SCENES = (
    "She opened the umbrella because it was| raining| sleeping| singing;"
    "He was hungry, so he ate a| sandwich| river| cloud;"
    "She was thirsty, so she drank some| water| stones| paper;"
    "He was tired, so he went to| bed| war| Mars;"
    "The baby was crying, so the mother picked it| up| red| ten;"
    "She put the letter into an| envelope| ocean| elephant;He cut the bread with a| knife| pillow| song;"
    "They went to the beach to swim in the| sea| desert| kitchen;"
    "She wrote her name with a| pen| spoon| shoe;He put on his coat because it was| cold| Tuesday| blue;"
    "She turned on the lamp because it was| dark| sweet| loud;The farmer milked the| cow| car| book;"
    "The doctor examined the| patient| weather| bread;"
    "The students listened to the| teacher| carpet| soup;He opened the door with his| key| soup| cloud;"
    "She washed her hands with soap and| water| sand| paper;The bird built a| nest| bank| train;"
    "He drove to work in his| car| sock| spoon;She read the children a| story| stone| chair;"
    "The cat chased the| mouse| moon| train;He bought a ticket and got on the| train| lamp| soup;"
    "She looked at the clock to see what| time| color| bread;They lit a fire to keep| warm| blue| late;"
    "He planted the seeds in the| ground| air| book;She paid for the book with her| money| nose| window;"
    "The ship sailed across the| ocean| kitchen| ceiling;The plane landed at the| airport| spoon| bakery;"
    "He broke his leg and went to the| hospital| beach| circus;"
    "The chef cooked the meal in the| kitchen| bath| bank;She took a photo with her| camera| spoon| shoe;"
    "He swept the floor with a| broom| cloud| letter;We sleep at| night| noon| red;"
    "The team scored a goal and won the| game| lamp| rain;She dried her hair with a| towel| brick| spoon;"
    "He fell asleep while reading a| book| wall| cloud;The dog wagged its| tail| hat| car;"
    "They sat around the table to eat| dinner| chairs| songs;"
    "She planted flowers in her| garden| pocket| sleep;"
    "He climbed to the top of the| mountain| soup| minute;"
    "The judge sent the thief to| prison| lunch| music"
)


def items() -> tuple[Item, ...]:
    """All questions, in a fixed order; every one the same in every run."""
    draw = random.Random(_SEED)
    made = [
        *_facts(draw), *_opposites(draw), *_agreement(), *_order(draw), *_copies(draw), *_scenes(),
    ]  # fmt: skip
    return tuple(_mixed(kind, context, choices, draw) for kind, context, choices in made)


Raw = tuple[str, str, Sequence[str]]  # kind, context, the right choice first


def _facts(draw: random.Random) -> Iterator[Raw]:
    pairs = [pair.split(" ") for pair in _CAPITALS.split(",")]
    for country, capital in pairs:
        others = draw.sample([other for _, other in pairs if other != capital], 2)
        yield "facts", f"The capital of {country} is", (f" {capital}", *(f" {other}" for other in others))
    yield from _written("facts", _FACTS)


def _opposites(draw: random.Random) -> Iterator[Raw]:
    pairs = [pair.split(" ") for pair in _OPPOSITES.split(",")]
    shown = "The opposite of hot is cold. The opposite of big is small."
    for word, other in pairs[2:]:
        wrong = draw.sample([second for first, second in pairs[2:] if word not in (first, second)], 2)
        choices = (f" {other}", *(f" {text}" for text in wrong if text != other))
        yield "opposites", f"{shown} The opposite of {word} is", choices


def _agreement() -> Iterator[Raw]:
    for place, noun in enumerate(_SINGULAR.split(",")):
        plural = _PLURAL.get(noun, f"{noun}s")
        for offset in range(2):
            middle = _MIDDLE[(place + offset) % len(_MIDDLE)]
            one, many = ((" is", " are"), (" was", " were"))[offset]
            yield "agreement", f"The {noun} {middle}", (one, many)
            yield "agreement", f"The {plural} {middle}", (many, one)


def _order(draw: random.Random) -> Iterator[Raw]:
    for row, length in ((_DAYS, 3), (_MONTHS, 3), (_NUMBERS, 4)):
        for start in range(0, len(row) - length):
            right = row[start + length]
            wrong = draw.sample([word for word in row if word not in row[start : start + length + 1]], 2)
            yield (
                "order",
                ", ".join(row[start : start + length]) + ",",
                (f" {right}", *(f" {w}" for w in wrong)),
            )


def _copies(draw: random.Random) -> Iterator[Raw]:
    words = _WORDS.split(",")
    for count in range(40):
        listed = draw.sample(words, 5 + count % 4)
        place = 2 + count % 3
        wrong = draw.sample([word for word in listed if word != listed[place]], 2)
        again = ", ".join(listed[:place])
        yield "copying", f"{', '.join(listed)}. {again},", (f" {listed[place]}", *(f" {w}" for w in wrong))


def _scenes() -> Iterator[Raw]:
    yield from _written("scenes", _SCENES)


def _written(kind: str, text: str) -> Iterator[Raw]:
    for entry in text.split(";"):
        context, *choices = entry.split("|")
        yield kind, context, tuple(choices)


def _mixed(kind: str, context: str, choices: Sequence[str], draw: random.Random) -> Item:
    """The choices in an order that says nothing."""
    mixed = list(choices)
    draw.shuffle(mixed)
    return Item(kind, context, tuple(mixed), mixed.index(choices[0]))


def write_lm_eval_task(folder: Path) -> Path:
    """Writes the questions as a local task of lm-evaluation-harness; returns the folder for `--include_path`.

    Nothing of it is fetched from a hub.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"{TASK}.jsonl"
    rows = [
        {"kind": item.kind, "context": item.context, "choices": list(item.choices), "answer": item.answer}
        for item in items()
    ]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    (folder / f"{TASK}.yaml").write_text(
        _YAML.format(task=TASK, data=json.dumps(str(data))), encoding="utf-8"
    )
    return folder


_YAML = """\
task: {task}
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
num_fewshot: 0
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
metadata:
  version: 1.0
"""


if __name__ == "__main__":
    write_lm_eval_task(Path(sys.argv[1]))
