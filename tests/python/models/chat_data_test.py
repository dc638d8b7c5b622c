"""The conversations that ship with Troupe, and the tokenizer of scribe-chat, beside the script that makes them."""

import json
import os
import runpy
import subprocess
import unittest

from support import environment, root

configs = os.path.join(root, "configs")
made = runpy.run_path(os.path.join(configs, "data", "make_chat.py"))
program = os.environ.get("TROUPE_PROGRAM")


def messages(name):
    with open(os.path.join(configs, "data", f"{name}.jsonl")) as file:
        return [[m["content"] for m in json.loads(line)["messages"]] for line in file]


class ChatData(unittest.TestCase):
    def test_shipped_conversations_and_model_files_are_those_that_the_script_makes(self):
        for name, text in made["files"]().items():
            with open(os.path.join(configs, name)) as file:
                self.assertEqual(file.read(), text, name)

    def test_held_out_questions_are_asked_nowhere_else_and_are_of_the_same_kind(self):
        read = {content for one in messages("chat") for content in one}
        for name in ("capitals", "units", "desk"):
            learned, held = messages(name), messages(f"{name}-held-out")
            self.assertFalse({q for q, _ in held} & ({q for q, _ in learned} | read), name)
            self.assertFalse({q for q, _ in learned} & read, name)
            self.assertEqual({a.split()[0] for _, a in held} - {a.split()[0] for _, a in learned}, set(), name)

    @unittest.skipIf(program is None, "needs TROUPE_PROGRAM")
    def test_prompts_of_the_chat_model_are_its_template_and_answers_end_with_its_token(self):
        files = [os.path.join(configs, "data", f"{name}.jsonl") for name in ("chat", "capitals", "units", "desk")]
        for file in files:
            found = subprocess.run([program, "check", file, "--model", os.path.join(configs, "models", "scribe-chat"), "--json"],
                                   env=environment(), capture_output=True, text=True)
            self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
            about = json.loads(found.stdout)["files"][0]
            self.assertEqual([about[x] for x in ("ends", "split_answers", "boundary_cuts", "too_long", "bos_per_example")],
                             ["template", 0, 0, 0, 0], file)
            self.assertTrue(about["first"]["text"].startswith(("<|user|>", "<|system|>")))
            self.assertTrue(about["first"]["text"].endswith("<|end|>"))
