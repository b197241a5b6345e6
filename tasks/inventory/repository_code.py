"""The repository's own code, read as text: what it defines, asks for and could do beyond computing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from day0.adapters.checkpoints.strict_json import JsonError, parse_strict, shorten
from day0.adapters.models.code_reading import Reading, read_code

from ..finding import Finding, Severity, Subject, make_finding
from .code_references import code_references
from .readable import plural
from .record_trust import Code, CodeCall, CodeClass, CodeFile, CodeReference
from .seen import Part, Seen
from .support import is_native

MAX_BYTES = 6_000_000  # of code in all; parsing takes some 2 s a megabyte, real releases carry 0.3 MB
_MAX_CALLS = 1000
_MAX_CLASSES = 500  # of one file
_BINARIES = (".so", ".pyd", ".pyc", ".dll", ".dylib")
_CONFIGS = ("tokenizer_config.json", "generation_config.json", "preprocessor_config.json",
            "processor_config.json", "video_preprocessor_config.json")  # fmt: skip
# What loading a model never needs; reading and writing files and importing by name are usual in its tools.
_ALARMING = ("execute", "process", "network", "unpickle", "native")
_SAYS = {
    "execute": "runs text as code", "process": "starts processes", "network": "talks to the network",
    "unpickle": "unpickles", "native": "loads or builds native code", "import": "imports by computed names",
    "write": "writes or removes files",
}  # fmt: skip


def read_repository_code(seen: Seen) -> Part:
    """The part of the inventory that is about code; nothing of it is imported or run."""
    source = seen.release.source
    paths = {file.path for file in source.files()} if source else set()
    readings = _readings(seen.texts.held, paths)
    references = [
        _resolved(item, readings, paths) if source else item for item in code_references(_configs(seen))
    ]
    calls = [
        CodeCall(kind=kind, what=what, file=reading.path, line=line)
        for reading in readings
        for kind, what, line in sorted(reading.calls, key=lambda call: (call[2], call[0], call[1]))
    ]
    calls += [
        CodeCall(kind="native", what="binary file", file=path, line=0)
        for path in sorted(paths)
        if path.endswith(_BINARIES)
    ]
    kernels = {kernel for reading in readings for kernel in reading.kernels}
    kernels |= {f"hub:{item.repository}" for item in references if _is_kernel(item)}
    code = Code(
        files=tuple(_file(reading) for reading in readings),
        references=tuple(references),
        kernels=tuple(sorted(kernels)),
        packages=tuple(sorted({package for reading in readings for package in reading.packages})),
        calls=tuple(calls[:_MAX_CALLS]),
    )
    findings = [
        *_own_classes(code.references),
        *_call_findings(calls),
        *_kernel_findings(code),
        *_incomplete(code, native=is_native(seen.facts)),
        *_foreign(code),
    ]
    sources = {
        "/code": "computed:the release's Python files, parsed as text",
        "/code/references": "config.json#",
    }
    return Part({"code": code}, findings, sources)


def _readings(held: Mapping[str, bytes], paths: set[str]) -> Sequence[Reading]:
    readings, read = [], 0
    for path in sorted(held):
        if path.endswith(".py"):
            read += len(held[path])
            if read > MAX_BYTES:
                readings.append(Reading(path, error=f"is beyond the first {MAX_BYTES} bytes of code"))
            else:
                readings.append(read_code(path, held[path], paths))
    return readings


def _configs(seen: Seen) -> Mapping[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {"config.json": seen.facts.config}
    for name in _CONFIGS:
        try:
            parsed = parse_strict(seen.texts.held[name]) if name in seen.texts.held else None
        except JsonError:  # the parts that need the file say so
            continue
        if isinstance(parsed, dict):
            found[name] = parsed
    return found


def _resolved(item: CodeReference, readings: Sequence[Reading], paths: set[str]) -> CodeReference:
    """The reference with whether this release's files define it."""
    if item.repository:
        return item
    module, _, name = item.target.rpartition(".")
    path = f"{module.replace('.', '/')}.py"
    reading = next((reading for reading in readings if reading.path == path), None)
    found = path in paths and (reading is None or bool(reading.error) or name in reading.names)
    return item.model_copy(update={"found": found})


def _is_kernel(item: CodeReference) -> bool:
    return bool(item.repository) and "_implementation" in item.key


def _file(reading: Reading) -> CodeFile:
    return CodeFile(
        path=reading.path,
        lines=reading.lines,
        classes=tuple(
            CodeClass(name=name, line=line, bases=bases)
            for name, line, bases in sorted(reading.classes, key=lambda item: item[1])[:_MAX_CLASSES]
        ),
        functions=reading.functions,
        packages=tuple(sorted(reading.packages)),
        relative=tuple(sorted(reading.relative)),
        missing=tuple(sorted(reading.missing))[:_MAX_CLASSES],
        error=reading.error,
    )


def own_classes(references: Iterable[CodeReference]) -> Sequence[str]:
    """The classes of the repository's own code that the configs ask for, each once."""
    return sorted({item.target for item in references if not item.repository})


def _own_classes(references: Sequence[CodeReference]) -> Iterable[Finding]:
    asked = own_classes(references)
    if asked:
        number = plural(len(asked), "class", "classes")
        named = ", ".join(shorten(target)[1:-1] for target in asked[:5])
        message = f"the configs ask for {number} of the repository's own code: {named}"
        evidence = [item.key for item in references if not item.repository][:20]
        yield make_finding("INV016", Subject(kind="model", name="model"), message, evidence=evidence)


def _call_findings(calls: Sequence[CodeCall]) -> Iterable[Finding]:
    """One finding a kind, all places as evidence."""
    for kind, says in _SAYS.items():
        found = [call for call in calls if call.kind == kind]
        if found:
            places = [f"{call.file}:{call.line} {call.what}" for call in found]
            message = (
                f"code of the repository {says} in {plural(len(found), 'place')}"
                f"{', the first is' if len(found) > 1 else ':'} {shorten(places[0])}"
            )
            severity: Severity | None = None if kind in _ALARMING else "info"
            subject = Subject(kind="model", name=f"code: {kind}")
            yield make_finding("INV067", subject, message, evidence=places[:20], severity=severity)


def _kernel_findings(code: Code) -> Iterable[Finding]:
    if code.kernels:
        number = plural(len(code.kernels), "kernel or kernel package", "kernels or kernel packages")
        message = f"the code asks for {number}: {', '.join(code.kernels[:8])}"
        yield make_finding(
            "INV068", Subject(kind="model", name="kernels"), message, evidence=code.kernels[:50]
        )


def _incomplete(code: Code, *, native: bool) -> Iterable[Finding]:
    """Classes, modules and files that are not there; a remark where transformers builds the model itself."""
    severity: Severity | None = "info" if native else None
    lost = [item for item in code.references if item.found is False]
    if lost:
        targets = own_classes(lost)
        listed = ", ".join(shorten(target) for target in targets[:3])
        if len(targets) == 1:
            message = f"a class that the configs name is in no file of the release: {listed}"
        else:
            asked = len(own_classes(code.references))
            message = (
                f"{len(targets)} of {asked} classes that the configs ask for are in no file of the release, "
                f"e.g. {listed}"
            )
        subject = Subject(kind="config", name="auto_map")
        yield make_finding(
            "INV069", subject, message, evidence=[item.key for item in lost[:20]], severity=severity
        )
    for file in code.files:
        if file.error:
            message = f"{shorten(file.path)[1:-1]} {file.error}"
            yield make_finding("INV069", Subject(kind="file", name=file.path), message, evidence=[file.path])
        elif file.missing:
            message = (
                f"{shorten(file.path)[1:-1]} imports {', '.join(file.missing[:5])}, which the release lacks"
            )
            yield make_finding(
                "INV069",
                Subject(kind="file", name=file.path),
                message,
                evidence=[file.path],
                severity=severity,
            )


def _foreign(code: Code) -> Iterable[Finding]:
    for item in code.references:
        if not item.repository:
            continue
        kernel = _is_kernel(item)
        what = f"a kernel of {shorten(item.repository)}" if kernel else f"code of {shorten(item.repository)}"
        message = f"{item.key} asks for {what}: {shorten(item.target)}"
        if kernel:
            message += "; transformers 4.56 to 5.2 loads and runs it without being asked"
        subject = Subject(kind="config", name=item.key)
        yield make_finding(
            "INV070", subject, message, evidence=[item.key], severity="error" if kernel else None
        )
