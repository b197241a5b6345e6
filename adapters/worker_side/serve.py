"""The worker's loop: reads a request, lets the stack do it, measures, answers (docs/worker-protocol.md)."""

from __future__ import annotations

import faulthandler
import hashlib
import importlib
import os
import platform
import sys
from typing import Any, BinaryIO, Callable, Dict, List, Mapping, Optional, Tuple

from day0_worker import describing, failures, frames, guardian
from day0_worker.batches import OperatorJob, OperatorResult
from day0_worker.measure import Measure
from day0_worker.part_verbs import PartVerbs
from day0_worker.ranks import thread_count
from day0_worker.stack import STACK_API, NodeRun, Stack, StackError
from day0_worker.workarounds import announce

PROTOCOL = 1
Result = Tuple[Dict[str, Any], Mapping[str, Any]]
"""What a verb answers: JSON and tensors by name."""


def main(requests: int, answers: int, sources: str) -> None:
    """Serves until the parent hangs up.

    Args:
        requests: descriptor to read frames from.
        answers: descriptor to write frames to; standard output goes to standard error by now.
        sources: folder with the stack's module, used where the environment cannot import it by itself.
    """
    guardian.start(requests, answers, os.getcwd())
    faulthandler.enable(sys.stderr)
    with os.fdopen(requests, "rb", buffering=0) as source, os.fdopen(answers, "wb", buffering=0) as sink:
        server = _Server(source, sink, sources)
        while server.serve_one():
            pass
        server.close()


def load_stack(reference: str, sources: str) -> type:
    """The stack's class, out of the environment or else out of `sources`.

    Args:
        reference: `module:Class`.
        sources: folder with modules sent by the parent.

    Raises:
        StackError: `import`, the class is not there or is no stack.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if sources in sys.path or not _is_sent(error.name or "", sources):
            raise
        sys.path.append(sources)
        importlib.invalidate_caches()
        _forget_incomplete(sources)
        module = importlib.import_module(name)
    found = getattr(module, attribute, None)
    if not (isinstance(found, type) and issubclass(found, Stack)):
        raise StackError(f"{reference} is not a class derived from day0_worker.Stack", "import")
    return found


def _is_sent(name: str, sources: str) -> bool:
    path = os.path.join(sources, *name.split("."))
    return bool(name) and (os.path.isdir(path) or os.path.isfile(path + ".py"))


def _forget_incomplete(sources: str) -> None:
    """Lets packages found without the missing module (such as an empty namespace) be looked up anew."""
    for package in os.listdir(sources):
        for name in [name for name in sys.modules if name == package or name.startswith(package + ".")]:
            del sys.modules[name]


class _Server:
    def __init__(self, source: BinaryIO, sink: BinaryIO, sources: str) -> None:
        self._source, self._sink, self._sources = source, sink, sources
        self._stack: Optional[Stack] = None
        self._paused: Optional[PartVerbs] = None
        self._verbs: Dict[str, Callable[[Mapping[str, Any], Mapping[str, Any]], Result]] = {
            "hello": self._hello,
            "ping": lambda request, tensors: ({}, {}),
            "sees": self._sees,
            "describe": lambda request, tensors: (describing.description(self._loaded()), {}),
            "prepare": self._prepare,
            "run": self._run,
            "observe": self._observe,
            "resume": lambda request, tensors: self._parts().resume(request, tensors),
            "run_experts": self._run_experts,
            "drop": lambda request, tensors: self._parts().drop(request.get("keys")),
            "report": lambda request, tensors: (self._loaded().report(request["handle"]), {}),
            "forget": self._forget,
            "run_op": self._run_op,
            "run_ops": self._run_ops,
            "load": lambda request, tensors: (self._loaded().load(request["folder"], request["dtype"]), {}),
            "train": self._train,
            "score": lambda request, tensors: _tree(self._loaded().score(request["tokens"])),
            "generate": lambda request, tensors: (
                self._loaded().generate(request["tokens"], request["new_tokens"]),
                {},
            ),
            "launch": lambda request, tensors: (
                {"ranks": self._loaded().launch(request["world_size"], request["job"])},
                {},
            ),
        }

    def serve_one(self) -> bool:
        try:
            request, blob = frames.unpack(self._read)
        except EOFError:
            return False
        answer: Dict[str, Any] = {"id": request.get("id")}
        tensors: Mapping[str, Any] = {}
        if self._stack is not None:
            self._stack.begin_call()
        try:
            answer["result"], tensors = self._do(request, blob)
        except Exception as error:  # the boundary: everything a stack raises becomes an answer
            answer["error"] = failures.answer(error)
        if self._stack is not None:
            answer.update(self._stack.end_call())
        self._write(answer, tensors)
        return True

    def _do(self, request: Mapping[str, Any], blob: bytearray) -> Result:
        verb = self._verbs.get(str(request.get("verb")))
        if verb is None:
            raise StackError(f"the worker knows no verb {request.get('verb')!r}", "unsupported")
        if not blob:
            return verb(request, {})
        from day0_worker.blobs import load

        return verb(request, load(blob))

    def _write(self, answer: Dict[str, Any], tensors: Mapping[str, Any]) -> None:
        from day0_worker.blobs import dump

        try:
            parts = frames.pack(answer, list(dump(tensors)) if tensors else [])
        except (TypeError, ValueError) as error:
            parts = frames.pack({"id": answer["id"], "error": failures.answer(error)}, [])
        for part in parts:
            view = memoryview(part)
            while view:
                view = view[self._sink.write(view) :]

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            piece = self._source.read(min(size - len(data), 2**24))
            if not piece:
                raise EOFError
            data += piece
        return data

    def close(self) -> None:
        """Ends runs that stand still."""
        if self._paused is not None:
            self._paused.close()

    def _parts(self) -> PartVerbs:
        if self._paused is None:
            self._paused = PartVerbs(self._loaded())
        return self._paused

    def _loaded(self) -> Stack:
        if self._stack is None:
            raise StackError("the worker was not told its stack yet; say hello first", "unsupported")
        return self._stack

    def _hello(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        if request["protocol"] != PROTOCOL:
            raise StackError(
                f"this worker speaks protocol {PROTOCOL}, not {request['protocol']}", "unsupported"
            )
        stack = load_stack(request["stack"], self._sources)
        api = getattr(stack, "api", STACK_API)
        if api != STACK_API:
            raise StackError(
                f"{request['stack']} was written for version {api} of the contract, this is {STACK_API}",
                "unsupported",
            )
        announce(request.get("workarounds", {}), self._sources)
        self._stack = stack(request["device"], request["count"], request["dtype"], request["options"])
        self._stack.reference, self._stack.sources = request["stack"], self._sources
        self._stack.threads = thread_count()
        self._stack.begin_call()
        return {"protocol": PROTOCOL, "api": api, "pid": os.getpid(), "python": platform.python_version()}, {}

    def _sees(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        """Which of the files, given with size and digest of both ends, are the same file here."""
        return {
            "seen": [file["path"] for file in request["files"] if file_mark(file["path"]) == file["mark"]]
        }, {}

    def _prepare(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        from day0_worker.trees import decode, decode_arguments

        args, kwargs = decode_arguments(request["tree"], tensors)
        fragment = {**request["fragment"], "config": decode(request["fragment"]["config"], {})}
        args, kwargs = self._loaded().ways.received(fragment["node"], (args, kwargs))
        handle = self._loaded().prepare(fragment, args, kwargs, request["mode"], request["weights"])
        return {"handle": handle}, {}

    def _run(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        job, ways = self._node_run(request, tensors), self._loaded().ways
        if job.pause:
            return self._parts().start(job)
        return self._measured(lambda stack: ways.returned(job.node, stack.run(job)))

    def _observe(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        from day0_worker.observed import Observer

        job, stack = self._node_run(request, tensors), self._loaded()
        observer = Observer(request["limit"], stack.device)
        try:
            with observer:
                value = stack.run(job)
            said, outputs = _tree(stack.ways.returned(job.node, value))
        except Exception as error:  # whatever the stack raises: what it called before is the answer
            said, outputs = {"error": failures.answer(error)}, {}
        said.update(operators=observer.operators, left_out=observer.left_out)
        return said, {**outputs, **observer.contents}

    def _node_run(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> NodeRun:
        from day0_worker.trees import decode_arguments
        from day0_worker.weights import LazyWeights

        args, kwargs = decode_arguments(request["tree"], tensors)
        expressions = request["weights"]
        weights = None if expressions is None else LazyWeights(expressions, tensors)
        node, ways = request["node"], self._loaded().ways
        args, kwargs = ways.received(node, (args, kwargs))
        pause = request.get("pause") or ""
        job = NodeRun(request["handle"], node, weights, args, kwargs, request["state"], pause=pause)
        self._parts().make_way(job)
        return job

    def _run_experts(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        from day0_worker.trees import decode
        from day0_worker.weights import LazyWeights

        args = decode(request["tree"], tensors)
        weights = LazyWeights(request["weights"], tensors)
        job = NodeRun(request["handle"], request["node"], weights, args, {}, None, experts=request["experts"])
        return self._measured(lambda stack: stack.run(job))

    def _train(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        from day0_worker.training import TrainJob
        from day0_worker.trees import decode
        from day0_worker.weights import LazyWeights

        fragment = request["fragment"]
        weights = LazyWeights(request["weights"], tensors)
        names = ("tied", "experts", "tokens", "settings")
        job = TrainJob(
            fragment["architecture"],
            decode(fragment["config"], {}),
            fragment["dtype"],
            fragment["options"],
            weights,
            **{name: request[name] for name in names},
        )
        stack = self._loaded()
        made = stack.train(job)
        outputs = {"losses": made.losses}
        for group in ("gradients", "weights", "routed"):
            outputs.update({f"{group}/{name}": value for name, value in getattr(made, group).items()})
        return {}, outputs

    def _forget(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        self._loaded().forget(request["state"])
        return {}, {}

    def _run_op(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        from day0_worker.operators import decode_call

        call = request["call"]
        ordered: List[Any] = [tensors[f"t{index}"] for index in range(request["tensors"])]
        args, kwargs = decode_call(call, ordered)
        return self._measured(lambda stack: stack.run_op(call["op"], args, kwargs))

    def _run_ops(self, request: Mapping[str, Any], tensors: Mapping[str, Any]) -> Result:
        stack = self._loaded()
        stack.patience = float(request["patience"])
        answers: Dict[int, Dict[str, Any]] = {}
        outputs: Dict[str, Any] = {}
        jobs: List[OperatorJob] = []
        for index, call in enumerate(request["calls"]):
            ordered = [tensors[f"c{index}.t{place}"] for place in range(request["tensors"][index])]
            try:
                jobs.append(_job(index, call, ordered))
            except Exception as error:  # a call that cannot be decoded is answered like one that fails
                answers[index] = {"error": failures.answer(error)}
        for job, result in zip(jobs, stack.run_ops(jobs)):  # noqa: B905  # Python 3.9 has no strict
            answers[job.index] = _operator_answer(job.index, result, outputs)
        stack.begin_call()
        return {"answers": [answers[index] for index in range(len(request["calls"]))]}, outputs

    def _measured(self, work: Callable[[Stack], Any]) -> Result:
        """Runs it; a span that the stack measured itself stands, else the whole call is measured."""
        stack = self._loaded()
        whole = Measure()
        with whole.span(stack.device):
            value = work(stack)
        if not stack.measure.spans:
            stack.measure = whole
        return _tree(value)


def _job(index: int, call: Mapping[str, Any], tensors: List[Any]) -> OperatorJob:
    from day0_worker.operators import decode_call

    args, kwargs = decode_call(call, tensors)
    return OperatorJob(index, call["op"], args, kwargs)


def _operator_answer(index: int, result: OperatorResult, outputs: Dict[str, Any]) -> Dict[str, Any]:
    """One entry of a batch's answers; its tensors go into `outputs`."""
    from day0_worker.blobs import dump

    try:
        if result.error is not None:
            raise result.error
        tree, tensors = _tree(result.value)
        placed = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        dump(placed)
    except Exception as error:  # one operator's failure, or a value of a type that cannot cross
        return {"error": failures.answer(error), **result.measured}
    outputs.update({f"c{index}.{name}": tensor for name, tensor in placed.items()})
    return {**tree, **result.measured}


def _tree(value: Any) -> Result:
    from day0_worker.trees import encode

    tree, tensors = encode(value)
    return {"tree": tree}, tensors


def file_mark(path: str) -> str:
    """Size and digest of both ends, to tell whether two processes see one file; empty if unreadable."""
    try:
        with open(path, "rb") as handle:
            size = handle.seek(0, os.SEEK_END)
            handle.seek(0)
            digest = hashlib.sha256(handle.read(2**16))
            handle.seek(max(0, size - 2**16))
            digest.update(handle.read(2**16))
    except OSError:
        return ""
    return f"{size}:{digest.hexdigest()}"
