"""Prometheus and node_exporter for tests, on ports of the loopback that they have to themselves, and the queries of the
dashboard for Grafana."""
import json
import os
import re
import subprocess
import urllib.parse
import urllib.request

from . import store_servers
from .rows import ROOT

RULES = os.path.join(ROOT, "packaging", "prometheus", "ncclguard.rules.yml")
RULES_TEST = os.path.join(ROOT, "tests", "packaging", "rules.test.yml")
DASHBOARD = os.path.join(ROOT, "packaging", "grafana", "ncclguard.json")


def get(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read().decode()


class Server:
    """A program that serves HTTP at a port that it is told; stop() ends it."""

    def __init__(self, folder, name, words, ready):
        self.log = f"{folder}/{name}.log"
        for _ in range(5):  # somebody else may take the port meanwhile
            self.port = store_servers.free_port()
            self.address = f"127.0.0.1:{self.port}"
            with open(self.log, "ab") as log:
                self.process = subprocess.Popen([*words, f"--web.listen-address={self.address}"],
                                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            if store_servers.until(f"{name} (see {self.log})", lambda: self.answers(ready), 60):
                if self.process.poll() is None:
                    return
        raise RuntimeError(f"{name} does not start; see {self.log}")

    def answers(self, path):
        """Or it has ended."""
        try:
            return self.process.poll() is not None or get(f"http://{self.address}{path}") is not None
        except OSError:
            return False

    def stop(self):
        self.process.kill()
        self.process.wait()


class NodeExporter(Server):
    """With nothing but the files of this folder."""

    def __init__(self, folder, files):
        super().__init__(folder, "node-exporter",
                         ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
                          f"--collector.textfile.directory={files}"], "/metrics")

    def scrape(self):
        return get(f"http://{self.address}/metrics")


class Prometheus(Server):
    """Scrapes {job: [address]} and has our rules, with less patience than they have for users."""

    def __init__(self, folder, targets):
        with open(RULES, encoding="utf-8") as file:
            rules = re.sub(r"\bfor: \w+", "for: 3s", file.read())
        with open(f"{folder}/rules.yml", "w", encoding="utf-8") as file:
            file.write(rules)
        lines = ["global: {scrape_interval: 3s, scrape_timeout: 3s, evaluation_interval: 3s}",
                 f"rule_files: [{folder}/rules.yml]", "scrape_configs:"]
        lines += [f"- {{job_name: {job}, static_configs: [{{targets: {json.dumps(addresses)}}}]}}"
                  for job, addresses in targets.items()]
        with open(f"{folder}/prometheus.yml", "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
        super().__init__(folder, "prometheus",
                         ["prometheus", f"--config.file={folder}/prometheus.yml",
                          f"--storage.tsdb.path={folder}/prometheus-data"], "/-/ready")

    def query(self, expression):
        """[(labels, value)] at this moment."""
        query = urllib.parse.urlencode({"query": expression})
        answer = json.loads(get(f"http://{self.address}/api/v1/query?{query}"))
        return [(one["metric"], one["value"][1]) for one in answer["data"]["result"]]

    def firing(self, alert, **labels):
        """Is this alert firing with these labels?"""
        return any(labels.items() <= found.items()
                   for found, _ in self.query(f'ALERTS{{alertname="{alert}",alertstate="firing"}}'))


def dashboard():
    with open(DASHBOARD, encoding="utf-8") as file:
        return json.load(file)


def queries(board):
    """{what: query} of all panels, annotations and variables, every variable being what "All" makes of it. What says 0
    where there is nothing is left out: there must be something."""
    found = {}
    for panel in board["panels"]:
        for target in panel.get("targets", []):
            found[f"{panel['title']}, {target['refId']}"] = target["expr"]
    for annotation in board["annotations"]["list"]:
        found[annotation["name"]] = annotation["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"]).groups()
            found[f"variable {variable['name']}"] = f"count by ({label}) ({series})"
    return {what: query.removesuffix(" or vector(0)").replace("$__rate_interval", "30s")
            .replace("$job", ".*").replace("$host", ".*").replace("$group", ".*") for what, query in found.items()}
