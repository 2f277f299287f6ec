"""Does the list of mutations fit the code? Each passage occurs once, each test that is named exists."""

from __future__ import annotations

import ast

import pytest

from tests.mutations.catalog import ROOT, Mutation, load_mutations

MUTATIONS = load_mutations()
LEAST = 40


def test_there_are_enough_and_each_has_its_own_name() -> None:
    names = [mutation.name for mutation in MUTATIONS]
    assert len(set(names)) == len(names) >= LEAST


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_applies_once_and_names_tests_that_exist(mutation: Mutation) -> None:
    mutated = mutation.apply((ROOT / mutation.file).read_text())
    if mutation.file.endswith(".py"):
        ast.parse(mutated)
    assert mutation.tests
    for cited in mutation.tests:
        file, _, name = cited.partition("::")
        path = ROOT / file
        assert path.exists(), f"{file} is not there"
        if name:
            functions = {
                node.name
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name.rpartition("::")[2] in functions, f"{cited} is not there"
