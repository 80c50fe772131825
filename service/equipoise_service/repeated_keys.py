"""Keys that stand twice in one mapping of a YAML file: YAML would silently take the last, whatever was meant."""

from collections.abc import Iterator

import yaml

Place = tuple[str | int, ...]
"""Keys and indices that lead to a value."""


def repeated_keys(node: yaml.Node | None, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Each of them, with the place of its mapping."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            if key.value in seen:
                yield place, key.value
            seen.add(key.value)
            yield from repeated_keys(value, (*place, key.value))
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from repeated_keys(value, (*place, index))
