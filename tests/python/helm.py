"""`helm template` and `helm lint`, as far as the tests ask for them, by Helm's own engine.

For machines without a `helm`: `cargo xtask setup` puts this in its place below target/tools.
"""

import argparse
import sys

import helm_python as helm
import yaml


def arguments():
    parser = argparse.ArgumentParser(prog="helm")
    verbs = parser.add_subparsers(dest="verb", required=True)
    template = verbs.add_parser("template")
    template.add_argument("name")
    template.add_argument("chart")
    template.add_argument("--namespace", default="default")
    lint = verbs.add_parser("lint")
    lint.add_argument("--strict", action="store_true")
    lint.add_argument("chart")
    for verb in (template, lint):
        verb.add_argument("--values")
    return parser.parse_args()


def values_of(path):
    if path is None:
        return {}
    with open(path) as file:
        return yaml.safe_load(file) or {}


def template(options):
    values = values_of(options.values)
    with helm.Chart.load(options.chart) as chart:
        chart.validate_schema(values)
        manifests = chart.render(values, name=options.name, namespace=options.namespace)
    for path, text in sorted(manifests.items()):
        if path.endswith(".yaml") and text.strip():
            print(f"---\n# Source: {path}\n{text}")


def lint(options):
    report = helm.lint(options.chart, values_of(options.values), strict=options.strict)
    for message in report["messages"]:
        print(message["path"], message["error"])
    if report["errors"]:
        raise SystemExit("\n".join(report["errors"]))


def main():
    options = arguments()
    try:
        {"template": template, "lint": lint}[options.verb](options)
    except helm.HelmError as error:
        raise SystemExit(f"Error: {error}")


if __name__ == "__main__":
    main()
