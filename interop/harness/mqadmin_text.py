"""What do two outputs of one mqadmin command have in common? Text to records of named fields, and a count of the equal ones.

A line is a record: the row of a table (fields named by the header), ``name : value``, a member of JSON, a line with ``k=v`` pairs, or
else one field. Order of lines does not count (officially it is that of a Java hash table): equal records are paired first, the others
with the one that is most alike. Times, sizes, rates and addresses are masked where their form is right: a figure becomes ``#``, so a
missing one still shows.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

Field = tuple[str, str]
Record = tuple[Field, ...]
#: A field's name, its official value and ours; None where one side has no such field.
Difference = tuple[str, str | None, str | None]

_FRAME = re.compile(r"^\s+(at [\w.$/]+\(|at [\w.$]+//|\.\.\. \d+ more)|^\s+at ")
_HEADER = re.compile(r"^#\S")
_NAMED = re.compile(
    r"^(?:<broker>\s+)?([A-Za-z_%][^\s:=]*(?: [A-Za-z_][^\s:=]*){0,4})\s*[:=]\s*(.*)$"
)
_MEMBER = re.compile(r'^("?[\w.%-]+"?):(.*?),?$')
_PAIR = re.compile(r"([A-Za-z_()]\w*(?:\(\))?)=((?:\{[^{}]*\}|\[[^\[\]]*\]|[^,\[\]{}=])*)")
_CELL = re.compile(r"\S+(?: \S+)*")
_WORD = re.compile(r"\S+")
_SUMMARY = re.compile(r"^[A-Z][A-Za-z ]*: \S+$")

_TEXT_MASKS = (
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?"), "<time>"),
    (re.compile(r"\b\d{4}-\d\d-\d\d \d\d:\d\d\b"), "<time>"),
    (re.compile(r"(?<![\w.])1[78]\d{11}(?!\w)"), "<time>"),
    (re.compile(r"(?<!\w)20\d{12}(?:\d{3})?(?!\w)"), "<time>"),
    (re.compile(r"@[0-9a-f]{5,8}\b"), "@<object>"),
    (re.compile(r"\$\$Lambda[$\d/a-fx]*"), "$$Lambda"),
    (re.compile(r"\d{1,3}(?:\.\d{1,3}){3}@[\w#-]*\d[\w#-]*"), "<client id>"),
    (re.compile(r"(?<![\w.])/?\d{1,3}(?:\.\d{1,3}){3}:\d+"), "<address>"),
    (re.compile(r"\b[0-9A-F]{32}\b"), "<id>"),
)
_NUMBER = re.compile(r"-?\d+(\.\d+)?(E-?\d+)?")
# Rates over ten seconds, a minute and ten minutes, and times of the last full minute: each is there once a broker is old enough.
_GROWS_WITH_AGE = re.compile(r"^(get)?[A-Za-z]*Tps$|MessageDistributeTime$")


class Comparison(NamedTuple):
    """How alike two outputs are."""

    equal: int
    total: int
    differences: list[Difference]


class Masks(NamedTuple):
    """What is not compared literally.

    ``texts`` are patterns of what has another place or id on each side, ``figures`` matches names of fields that time decides.
    """

    texts: Mapping[str, str]
    figures: re.Pattern[str]

    def apply(self, text: str) -> str:
        """The text with everything replaced that has a name or the form of a time, an address or an id."""
        for pattern, name in self.texts.items():
            text = re.sub(pattern, name, text)
        for form, name in _TEXT_MASKS:
            text = form.sub(name, text)
        return text

    def value(self, name: str, value: str) -> str:
        """A field's value; figures that depend on time keep their form only."""
        value = value.strip()
        if _GROWS_WITH_AGE.search(name):
            return "<as old as it is>"
        if value.startswith("{") and value.endswith("}"):
            # Members of a Java hash table come in any order.
            value = "{" + ", ".join(sorted(value[1:-1].split(", "))) + "}"
        return _NUMBER.sub("#", value) if self.figures.search(name) else value


def excused(found: Comparison, by: Comparison) -> tuple[int, list[Difference]]:
    """How many differences another comparison has just so, and which are left."""
    known = Counter(by.differences)
    left = []
    for difference in found.differences:
        if known[difference] > 0:
            known[difference] -= 1
        else:
            left.append(difference)
    return len(found.differences) - len(left), left


def parse(output: str, masks: Masks) -> list[Record]:
    """The records of one output."""
    reader = _Reader(masks)
    for line in masks.apply(output).replace("\r", "").split("\n"):
        reader.line(line.rstrip())
    return reader.records


class _Reader:
    """Reads line by line; knows the table and the JSON object that the line is in."""

    def __init__(self, masks: Masks) -> None:
        self.records: list[Record] = []
        self._masks = masks
        self._columns: list[tuple[int, str]] = []
        self._path: list[str] = []

    def line(self, line: str) -> None:
        stripped = line.strip()
        if not stripped or set(stripped) <= set("-="):
            self._columns = []
            return
        if _FRAME.match(line):
            return
        if self._path or stripped in ("{", "["):
            self._json_line(stripped)
        elif _HEADER.match(stripped) and len(columns := _split_header(line)) > 1:
            self._columns = columns
            self._add(("header", " | ".join(name for _, name in columns)))
        elif self._columns:
            self._row(line)
        else:
            self._free_line(stripped)

    def _add(self, *fields: Field) -> None:
        self.records.append(tuple((name, self._masks.value(name, value)) for name, value in fields))

    def _row(self, line: str) -> None:
        if _SUMMARY.match(line):
            self._free_line(line)
            return
        cells = [(match.start(), match[0]) for match in _CELL.finditer(line)]
        names = [name for _, name in self._columns]
        if len(cells) != len(names):
            cells = [(match.start(), match[0]) for match in _WORD.finditer(line)]
        if len(cells) != len(names):
            # Some cells are empty: where a cell stands tells its column.
            names = [self._column_at(start, start + len(cell)) for start, cell in cells]
        self._add(*zip(names, (cell for _, cell in cells), strict=True))

    def _column_at(self, start: int, end: int) -> str:
        shared = [
            (min(end, at + len(name) + 1) - max(start, at), name) for at, name in self._columns
        ]
        most, name = max(shared)
        before = [column for at, column in self._columns if at <= start]
        return name if most > 0 or not before else before[-1]

    def _json_line(self, line: str) -> None:
        if line[0] in "}]":
            if self._path:
                self._path.pop()
            return
        member = _MEMBER.match(line)
        name, value = (member[1].strip('"'), member[2]) if member else ("item", line.rstrip(","))
        if value in ("{", "["):
            self._path.append(name)
        else:
            self._add((".".join([*self._path[1:], name]), value.strip('"')))

    def _free_line(self, line: str) -> None:
        if line.startswith('{"'):
            for field in _flat(json.loads(line), ""):
                self._add(field)
            return
        pairs = _PAIR.findall(line)
        if len(pairs) > 1:
            rest = re.sub(r"[\s,\[\]{}]+", " ", _PAIR.sub("", line)).strip()
            self._add(("line", rest), *pairs)
            return
        named = _NAMED.match(line)
        if named:
            self._add((named[1], named[2]))
        else:
            self._add(("line", line))


def _flat(value: object, path: str) -> Iterator[Field]:
    """The leaves of a JSON value, named by their path; elements of an array have no number."""
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _flat(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for member in value:
            yield from _flat(member, path)
    else:
        yield path, str(value)


def _split_header(line: str) -> list[tuple[int, str]]:
    """The columns' names with where they stand."""
    return [(match.start(), match[1].strip()) for match in re.finditer(r"#([^#]+)", line)]


def compare(official: Sequence[Record], ours: Sequence[Record]) -> Comparison:
    """Pair the records of two outputs and count their fields."""
    left = Counter(official)
    left.subtract(Counter(ours))
    equal = sum(len(record) for record in official) - sum(
        len(record) * count for record, count in left.items() if count > 0
    )
    theirs = [record for record, count in left.items() for _ in range(count)]
    own = [record for record, count in left.items() for _ in range(-count)]
    total, differences = equal, []
    for record in theirs:
        partner = max(own, key=lambda other: _likeness(record, other), default=None)
        if partner is None or not _likeness(record, partner):
            partner = ()
        else:
            own.remove(partner)
        same, found = _compare_fields(record, partner)
        equal += same
        total += same + len(found)
        differences += found
    for record in own:
        _, found = _compare_fields((), record)
        total += len(found)
        differences += found
    return Comparison(equal, total, differences)


def _likeness(one: Record, other: Record) -> int:
    """How many fields two records share: names count a little, values more; records without a common first name share nothing."""
    if not one or not other or {name for name, _ in one}.isdisjoint(name for name, _ in other):
        return 0
    names = Counter(name for name, _ in one) & Counter(name for name, _ in other)
    fields = Counter(one) & Counter(other)
    return names.total() + 100 * fields.total()


def _compare_fields(one: Iterable[Field], other: Iterable[Field]) -> tuple[int, list[Difference]]:
    mine, theirs = list(one), list(other)
    same = 0
    for field in list(mine):
        if field in theirs:
            mine.remove(field)
            theirs.remove(field)
            same += 1
    differences: list[Difference] = []
    for name, value in mine:
        match = next((field for field in theirs if field[0] == name), None)
        if match is not None:
            theirs.remove(match)
        differences.append((name, value, None if match is None else match[1]))
    differences += [(name, None, value) for name, value in theirs]
    return same, differences
