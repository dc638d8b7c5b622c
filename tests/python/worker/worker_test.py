import json
import os
import unittest

from support import Scratch, environment, has_torch, here, without_torch
from troupe.worker import protocol
from worker_node import Node, WorkerError

PROGRAM = os.path.join(here, "worker_program.py")
ROWS, MICROBATCHES, LAYERS = 2, 3, 4


@unittest.skipUnless(has_torch, without_torch)
class Workers(Scratch):
    def node(self, first=0, layers=LAYERS, stage=0, stages=1, recompute="none", arguments=None, lease=0, pipeline=0, pipelines=1):
        folder = self.path(f"worker{len(os.listdir(self.folder))}")
        os.mkdir(folder)
        node = Node(folder, environment())
        self.addCleanup(self.end, node)
        node.ready = node.set_up(PROGRAM, {
            "first_layer": first, "layers": layers, "stage": stage, "stages": stages, "rows": ROWS,
            "microbatches": MICROBATCHES, "recompute": recompute, "pipeline": pipeline, "pipelines": pipelines},
            arguments=arguments or {}, lease=lease)
        return node

    @staticmethod
    def end(node):
        node.process.kill()
        node.process.wait()
        node.socket.close()
        node.log.close()

    @staticmethod
    def direct(first=0, layers=LAYERS, recompute="none"):
        """The same stage in this process."""
        import torch
        from troupe.layers.model_file import Program
        from troupe.layers.stage import Stage

        torch.set_num_threads(1)
        torch.use_deterministic_algorithms(True)
        stage = Stage(Program(PROGRAM), first, layers, rows=ROWS, microbatches=MICROBATCHES, recompute=recompute)
        stage.start()
        return stage

    def assertEqualTensors(self, found, expected):
        import torch

        self.assertEqual(len(found), len(expected))
        for f, e in zip(found, expected):
            self.assertEqual((f.dtype, f.shape, f.requires_grad), (e.dtype, e.shape, e.requires_grad))
            self.assertTrue(torch.equal(f, e), (f, e))

    # -- results

    def test_a_worker_trains_like_the_stage_called_directly(self):
        node, stage = self.node(), self.direct()
        self.assertEqual(node.ready["own_parameters"], stage.own_parameters)
        self.assertEqual(node.ready["tied_parameters"], 88)
        self.assertEqual([layer["name"] for layer in node.ready["layers"]], ["First", "Mixed", "Mixed", "Last"])
        for iteration in range(3):
            for m in range(MICROBATCHES):
                answer, made = node.forward(iteration, m), stage.forward(iteration, m)
                self.assertEqual(answer.loss, made.loss)
                self.assertEqual(json.loads(answer.body), {"values": [["right", *made.values["right"]]]})
                node.backward(iteration, m)
                stage.backward(iteration, m)
            own, tied = stage.gradients()
            self.assertEqualTensors(node.flat_gradients(), (own, tied))
            norms = stage.squared_norms()
            self.assertEqual(list(memoryview(node.ask(protocol.NORMS).body).cast("d")), norms)
            answer = node.ask(protocol.UPDATE, scale=1 / MICROBATCHES)
            self.assertEqual(answer.squared_norm, stage.squared_norm() * stage.scale ** 2)
            self.assertAlmostEqual(stage.squared_norm() / sum(norms), 1, delta=1e-5)
            self.assertGreater(answer.peak_bytes, 1 << 20)
            stage.update()
        answer = node.ask(protocol.WEIGHTS, output=node.buffer(0))
        self.assertEqualTensors(node.read(answer.output), stage.weights())

    def test_two_stages_pass_tensors_through_slots(self):
        for recompute in ("none", "stage", "layers"):
            with self.subTest(recompute=recompute):
                self.train_in_two_stages(recompute)

    def train_in_two_stages(self, recompute):
        first = self.node(0, 2, 0, 2, recompute)
        last = self.node(2, 2, 1, 2, recompute)
        one, two = self.direct(0, 2, recompute), self.direct(2, 2, recompute)
        keep = recompute == "none"
        for iteration in range(2):
            # All micro-batches are in flight: a buffer for each.
            for m in range(MICROBATCHES):
                answer = first.forward(iteration, m, output=first.buffer(m), keep=keep)
                sent = first.read(answer.output)
                made = one.forward(iteration, m, keep=keep)
                self.assertEqualTensors(sent, made.tensors)
                self.assertEqual([t.requires_grad for t in sent], [True, False])
                answer = last.forward(iteration, m, last.write(m, sent), keep=keep)
                self.assertEqual(answer.loss, two.forward(iteration, m, made.tensors, keep=keep).loss)
            for m in range(MICROBATCHES):
                if recompute == "stage":
                    for node, stage in ((first, one), (last, two)):
                        node.ask(protocol.RECOMPUTE, iteration=iteration, microbatch=m)
                        stage.recompute(iteration, m)
                answer = last.backward(iteration, m, output=last.buffer(7))
                gradient = last.read(answer.output)
                made = two.backward(iteration, m)
                self.assertEqualTensors([g.detach() for g in gradient], made)
                first.backward(iteration, m, first.write(7, made))
                one.backward(iteration, m, made)
            for node, stage in ((first, one), (last, two)):
                self.assertEqualTensors(node.flat_gradients(), stage.gradients())
                node.ask(protocol.UPDATE)
                stage.update()

    def test_sums_that_the_node_writes_are_what_is_applied(self):
        node, stage = self.node(), self.direct()
        node.forward(0, 0)
        stage.forward(0, 0)
        node.backward(0, 0)
        stage.backward(0, 0)
        for flats in (node.flat_gradients(), stage.gradients()):
            for flat in flats:
                flat.mul_(3)
        node.ask(protocol.UPDATE)
        stage.update()
        answer = node.ask(protocol.WEIGHTS, output=node.buffer(0))
        self.assertEqualTensors(node.read(answer.output), stage.weights())
        self.assertTrue(all(float(flat.abs().sum()) == 0 for flat in node.flat_gradients()))

    def test_workers_of_several_pipelines_sum_their_gradients(self):
        import torch

        nodes = [self.node(pipeline=p, pipelines=2) for p in range(2)]
        value = [rank << 32 | 2 for rank in range(2)]
        name, none = (n.ask(protocol.GROUP, value=v).body for n, v in zip(nodes, value))
        self.assertEqual(none, b"")
        for node, v in zip(nodes, value):
            node.send(protocol.JOIN, name, value=v)
        for node in nodes:
            node.answer()
        for node in nodes:
            node.forward(0, 0)
            node.backward(0, 0)
        alone = [[t.clone() for t in node.flat_gradients()] for node in nodes]
        self.assertFalse(torch.equal(alone[0][0], alone[1][0]))
        for node in nodes:
            node.send(protocol.SUM, flags=protocol.WITH_TIED)
        for node in nodes:
            node.answer()
        for node in nodes:
            self.assertEqualTensors(node.flat_gradients(), [a + b for a, b in zip(*alone)])

    def test_an_input_that_was_copied_may_be_overwritten(self):
        node, stage = self.node(2, 2, 1, 2), self.direct(2, 2)
        given = self.direct(0, 2).forward(0, 0).tensors
        place = node.write(0, given)
        node.forward(0, 0, place, flags=protocol.COPY_INPUT)
        node.memory[0:4096] = bytes(4096)
        stage.forward(0, 0, given)
        answer = node.backward(0, 0, output=node.buffer(1))
        self.assertEqualTensors([g.detach() for g in node.read(answer.output)], stage.backward(0, 0))

    def test_an_evaluation_changes_nothing(self):
        node, stage = self.node(), self.direct()
        node.forward(0, 0)
        answer = node.forward(0, 0, flags=protocol.EVALUATE)
        self.assertEqual(answer.loss, stage.forward(0, 0, evaluate=True).loss)
        stage.forward(0, 0)
        stage.backward(0, 0)
        node.backward(0, 0)
        self.assertEqualTensors(node.flat_gradients(), stage.gradients())

    def test_an_output_larger_than_its_buffer_is_asked_for_again(self):
        node = self.node(0, 2, 0, 2)
        answer = node.forward(0, 0, output=node.buffer(0, 128))
        self.assertEqual(answer.flags, protocol.LARGER)
        wanted = protocol.unpack_place(answer.output)
        self.assertEqual((wanted.region, wanted.offset), (0, 0))
        answer = node.ask(protocol.OUTPUT, output=node.buffer(0, wanted.bytes))
        self.assertEqualTensors(node.read(answer.output), self.direct(0, 2).forward(0, 0).tensors)
        with self.assertRaisesRegex(Exception, "there is none"):
            node.ask(protocol.OUTPUT, output=node.buffer(0, wanted.bytes))

    # -- files

    def test_checkpoints_are_read_by_other_stages(self):
        node = self.node(lease=5)
        for m in range(MICROBATCHES):
            node.forward(0, m)
            node.backward(0, m)
        node.ask(protocol.UPDATE)
        saved = self.path("saved")
        answer = node.ask(protocol.SAVE, json.dumps({"path": saved}).encode(), iteration=1)
        files = json.loads(answer.body)["files"]
        self.assertEqual(len(files), 3)  # the last layer's only parameter is the first one's
        self.assertTrue(all("lease-5" in f and os.path.exists(os.path.join(saved, f)) for f in files), files)
        weights = node.read(node.ask(protocol.WEIGHTS, output=node.buffer(0)).output)
        stage = self.direct()
        self.assertEqual(stage.load(saved, files), 1)
        self.assertEqualTensors(weights, stage.weights())
        other = self.node()
        other.ask(protocol.LOAD, json.dumps({"path": saved}).encode())
        self.assertEqualTensors(other.read(other.ask(protocol.WEIGHTS, output=other.buffer(0)).output), weights)

    # -- errors

    def test_an_exception_in_a_layer_has_its_place_and_traceback(self):
        node = self.node(layers=5, arguments={"raises": "shapes"})
        with self.assertRaises(WorkerError) as raised:
            node.forward(0, 0)
        body = raised.exception.body
        self.assertEqual((body["layer"], body["layer_name"], body["type"]), (3, "Raises", "RuntimeError"))
        self.assertEqual((body["file"], body["cause"]), (PROGRAM, "exception"))
        with open(PROGRAM) as f:
            self.assertIn("shapes do not fit", f.readlines()[body["line"] - 1])
        self.assertIn("Traceback", body["traceback"])
        node.log.seek(0)
        self.assertIn("Traceback", node.log.read())
        node.ask(protocol.PEAK)  # the worker goes on

    def test_a_lack_of_memory_is_one(self):
        node = self.node(layers=5, arguments={"raises": "memory"})
        with self.assertRaises(WorkerError) as raised:
            node.forward(0, 0)
        self.assertEqual(raised.exception.body["cause"], "out_of_memory")

    def test_a_program_that_cannot_be_run_is_a_sentence(self):
        for program, words in (("missing.py", "missing.py: No such file"), (PROGRAM, "found SHA-256")):
            folder = self.path(os.path.basename(program))
            os.mkdir(folder)
            node = Node(folder, environment())
            self.addCleanup(self.end, node)
            with self.assertRaises(WorkerError) as raised:
                node.set_up(program, {"layers": 1}, sha256="0" * 64)
            self.assertEqual(raised.exception.body["type"], "")
            self.assertIn(words, raised.exception.body["message"])

    def test_the_nodes_numbers_are_checked(self):
        node = self.node(2, 2, 1, 2)
        for words, kind, more in (
                ("expected one of a region of", protocol.FORWARD, {"input": node.buffer(8)}),
                ("expected one of a region of 0 bytes", protocol.FORWARD, {"input": 9 << 56 | 1}),
                ("found stage 1", protocol.FORWARD, {"stage": 1}),
                ("found a message of kind 60", 60, {}),
                ("found a region without its memory", protocol.REGION, {"value": 4096}),
                ("found a second setup", protocol.SETUP, {"body": b"{}"}),
                ("no forward of iteration 0", protocol.BACKWARD, {"output": node.buffer(0)}),
                ("JSON", protocol.SAVE, {"body": b"no"})):
            with self.subTest(words):
                with self.assertRaisesRegex(WorkerError, words):
                    node.ask(kind, **more)
        with self.assertRaisesRegex(WorkerError, "region 2: found 4096 bytes, expected 8192"):
            node.share(2, 4096, claimed=8192)

    # -- the end

    def test_a_worker_ends_when_it_is_asked_to_or_alone(self):
        asked, alone = self.node(), self.node()
        asked.send(protocol.STOP)
        self.assertEqual(asked.process.wait(20), 0)
        self.assertEqual(alone.close(), 0)

    def test_hello_names_the_versions_and_the_blas(self):
        import torch

        node = self.node()
        self.assertEqual((node.hello["protocol"], node.hello["token"]), (protocol.VERSION, node.token))
        self.assertEqual((node.hello["torch"], node.hello["pid"]), (torch.__version__, node.process.pid))
        self.assertTrue(node.hello["blas"])


if __name__ == "__main__":
    unittest.main()
