#!/usr/bin/env python3
"""Checks an NVFP4 checkpoint of DeepSeek-V4 as other engines will read it, without dsv4's code.

    check_nvfp4.py MODEL [--source SOURCE] [--layout modelopt|compressed-tensors|auto] [--json]

Judges MODEL by the rules of NVIDIA's ModelOpt releases, or of compressed-tensors: names, dtypes,
shapes, scales, experts, index, and what the JSON files say of them. With --source both models are
decoded: what was lost is measured, MODEL's bytes are made again from the source, and
quantization_report.json, if MODEL has one, must tell the same. Memory does not grow with the model.

Exit status 0: accepted. 1: refused; each line names a tensor or file, the rule, and what is wrong.
2: bad usage, a SOURCE that cannot be read, or a package is missing
(tools/nvfp4_checker/requirements.txt).
"""

import argparse
import json
import sys
from dataclasses import asdict

try:
    from nvfp4_checker.comparison import REPORT, Comparison
    from nvfp4_checker.config_rules import ConfigRules
    from nvfp4_checker.model_files import Findings, Model, strict_json
    from nvfp4_checker.spellings import official_name
    from nvfp4_checker.tensor_rules import TensorRules
except ModuleNotFoundError as error:
    print(
        f"check_nvfp4: {error}; pip install -r tools/nvfp4_checker/requirements.txt",
        file=sys.stderr,
    )
    sys.exit(2)

MAX_SHOWN = 20
# A file that is missing, is no JSON, or lacks a key that everything else needs.
UNREADABLE = (OSError, ValueError, KeyError)
# What Python says of a number or a list in the JSON files where an object belongs, and the like.
OF_WRONG_KIND = (TypeError, AttributeError, IndexError)


class UnreadableSource(Exception):
    """Nothing can be said of the model that was made from it."""


def reason_of(error):
    if isinstance(error, OF_WRONG_KIND):
        return f"has a value of the wrong kind in a JSON file: {error}"
    return f"lacks {error}" if isinstance(error, KeyError) else str(error)


def read(folder, findings, layout="auto", has_source=False):
    rules = TensorRules(Model(folder, findings), findings, layout, has_source)
    rules.run()
    return rules


def read_source(folder, findings):
    """A source may have other publishers' names; what is wrong with it is no fault of the model."""
    source_findings = Findings()
    try:
        rules = TensorRules(Model(folder, source_findings, official_name), source_findings)
        rules.run()
    except (*UNREADABLE, *OF_WRONG_KIND) as error:
        raise UnreadableSource(f"the source {folder} cannot be read: {reason_of(error)}") from error
    for where, rule, message in source_findings.refusals:
        findings.note(f"source: {where}: [{rule}] {message}")
    return rules


def check(folder, source=None, layout="auto"):
    """Returns (findings, TensorRules of the model or None, Comparison or None)."""
    findings = Findings()
    try:
        model = read(folder, findings, layout, has_source=source is not None)
        if model.layout is None:
            findings.refuse(str(folder), "layout", "has no NVFP4 tensor")
            return findings, model, None
        ConfigRules(model.model, model.matrices, model.layout, findings).run()
        if source is None:
            return findings, model, None
        original = read_source(source, findings)
        report = model.model.folder / REPORT
        claims = strict_json(report) if report.exists() else None
        if claims is None:
            findings.note(f"no {REPORT}; nothing to compare what was measured to")
        comparison = Comparison(model, original, claims, findings)
        comparison.run()
        return findings, model, comparison
    except (*UNREADABLE, *OF_WRONG_KIND) as error:
        findings.refuse(str(folder), "container", reason_of(error))
        return findings, None, None


def summary(model):
    """How many matrices there are in each form, in the trunk and the draft block."""
    counts = {}
    for name, matrix in model.matrices.items():
        part = "draft block" if name.startswith("mtp.") else "trunk"
        counts[part, matrix.form] = counts.get((part, matrix.form), 0) + 1
    return ", ".join(
        f"{part}: {n} {form}" for (part, form), n in sorted(counts.items(), reverse=True)
    )


def print_losses(comparison):
    totals = comparison.totals()
    print(
        f"{'kind':14} {'values':>13} {'exact':>9} {'rel. RMS error':>15} {'cosine':>12} "
        f"{'blocks':>11} {'cast':>11} {'zeroed':>7} {'saturated':>9}"
    )
    for kind, t in totals.items():
        print(
            f"{kind:14} {t.values:13} {100 * t.exact_share:8.3f}% {t.relative_error:15.6g} "
            f"{t.cosine:12.9f} {t.quant_blocks:11} {t.cast_blocks:11} {t.zeroed_blocks:7} "
            f"{t.saturated_values:9}"
        )
    total = totals["total"]
    if total.lossless:
        print(f"lossless: all {total.values} values decode to the source's bits")
    else:
        print(f"not lossless: {total.values - total.exact_values} of {total.values} values differ")


def as_json(findings, model, comparison):
    out = {
        "accepted": not findings.refusals,
        "layout": model.layout if model else None,
        "refusals": [
            dict(zip(("where", "rule", "message"), refusal)) for refusal in findings.refusals
        ],
        "notes": findings.notes,
    }
    if comparison:
        out["lossless"] = comparison.totals()["total"].lossless
        out["kinds"] = {
            kind: {
                **asdict(tally),
                "exact_share": tally.exact_share,
                "relative_error": tally.relative_error,
                "cosine": tally.cosine,
            }
            for kind, tally in comparison.totals().items()
        }
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--source", help="the model that MODEL was made from")
    parser.add_argument(
        "--layout", default="auto", choices=["auto", "modelopt", "compressed-tensors"]
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    try:
        findings, model, comparison = check(options.model, options.source, options.layout)
    except UnreadableSource as error:
        print(f"check_nvfp4: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(as_json(findings, model, comparison)))
        return 1 if findings.refusals else 0
    for where, rule, message in findings.refusals[:MAX_SHOWN]:
        print(f"refused: {where}: [{rule}] {message}")
    if len(findings.refusals) > MAX_SHOWN:
        print(f"refused: and {len(findings.refusals) - MAX_SHOWN} more")
    for note in findings.notes[:MAX_SHOWN]:
        print(f"note: {note}")
    if model:
        print(f"{model.layout or 'no NVFP4'}; {summary(model)}")
    if comparison:
        print_losses(comparison)
    print("refused" if findings.refusals else "accepted")
    return 1 if findings.refusals else 0


if __name__ == "__main__":
    sys.exit(main())
