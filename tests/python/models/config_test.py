"""Which config.json files are read, and as what: the table is the inference engine's, too (config_files_test.cpp)."""

import dataclasses
import json
import os
import unittest

from support import Scratch, root

from troupe.errors import ProgramError
from troupe.models.config import read_model

table = os.path.join(root, "tests", "gpu", "inference", "config_files.json")


def described(folder):
    """{"refused": text without the file's path} or {"model": its fields}"""
    try:
        return {"model": dataclasses.asdict(read_model(folder))}
    except ProgramError as error:
        return {"refused": str(error).removeprefix(os.path.join(folder, "config.json") + ": ")}


class Table(Scratch):
    def test_the_same_files_are_read_and_refused_as_by_the_inference_engine(self):
        with open(table) as file:
            cases = json.load(file)
        self.assertGreaterEqual(len(cases), 60)
        for case in cases:
            self.write("config.json", case["text"])
            with self.subTest(case["text"]):
                self.assertEqual(described(self.folder), {k: v for k, v in case.items() if k != "text"})


if __name__ == "__main__":
    unittest.main()
