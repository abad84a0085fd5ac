"""The manifests of Kubernetes: valid for its API, consistent, and a server starts as they say."""

from __future__ import annotations

import re
import shlex
import shutil
import ssl
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
import yaml

from consensuspr.client import RewardClient, Rollout
from consensuspr.client.transport import Access
from consensuspr.errors import RewardServiceError
from consensuspr.server.config import ServerConfig
from tests.rows import DUCKS, DUCKS_SOLVED, write_rows
from tests.servers import PlayedDns, ServeProcess, free_port

# The oldest that is looked after by anybody, and the newest that is known here.
VERSIONS = ("1.29", None)
# Of extensions, whose schemas are not the API's.
EXTENSIONS = re.compile(r"(monitoring\.coreos\.com|kustomize\.config\.k8s\.io|cert-manager\.io)/")


@pytest.fixture(scope="module")
def folder(repository: Path) -> Path:
    return repository / "deploy/kubernetes"


@pytest.fixture(scope="module")
def resources(folder: Path) -> dict[str, Any]:
    """Every resource by its kind, those of the page by ``page`` and their kind."""
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text()):
            key = f"{'page ' if path.parent != folder else ''}{document['kind']}"
            assert found.setdefault(key, document) is document, path
    return found


@pytest.fixture(scope="module")
def pod(resources: dict[str, Any]) -> Any:
    return resources["Deployment"]["spec"]["template"]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_api_takes_them(resources: dict[str, Any], version: str | None) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    of_api = [entry for entry in resources.values() if not EXTENSIONS.match(entry["apiVersion"])]
    assert len(of_api) == 8
    for resource in of_api:
        kubernetes_validate.validate(
            resource, version or kubernetes_validate.latest_version(), strict=True
        )


def test_every_file_is_applied_or_stands_alone(folder: Path, resources: dict[str, Any]) -> None:
    applied = set(resources["Kustomization"]["resources"])
    there = {path.name for path in folder.glob("*.yaml")}
    assert there - applied == {"kustomization.yaml", "prometheus.yaml", "certificate.yaml"}
    assert applied <= there


def test_selectors_ports_and_secrets_fit(resources: dict[str, Any], pod: Any) -> None:
    labels = pod["metadata"]["labels"]
    specs = {kind: entry["spec"] for kind, entry in resources.items() if "spec" in entry}
    selectors = [
        specs["Deployment"]["selector"]["matchLabels"],
        specs["Service"]["selector"],
        specs["PodDisruptionBudget"]["selector"]["matchLabels"],
        specs["NetworkPolicy"]["podSelector"]["matchLabels"],
        specs["PodMonitor"]["selector"]["matchLabels"],
    ]
    assert selectors == [labels] * 5
    assert specs["HorizontalPodAutoscaler"]["scaleTargetRef"]["name"] == "consensuspr"
    [container] = pod["spec"]["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    used = [rule["ports"][0]["port"] for rule in specs["NetworkPolicy"]["ingress"]]
    used += [specs["Service"]["ports"][0]["targetPort"]]
    used += [specs["PodMonitor"]["podMetricsEndpoints"][0]["port"]]
    used += [container[f"{probe}Probe"]["httpGet"]["port"] for probe in ("liveness", "readiness")]
    assert set(used) == set(ports)
    assert specs["Service"]["ports"][0]["port"] == ports["grpc"]
    made = {entry["name"] for entry in resources["Kustomization"]["secretGenerator"]}
    mounted = {
        entry["secret"]["secretName"] for entry in pod["spec"]["volumes"] if "secret" in entry
    }
    assert mounted == made
    assert {entry["name"] for entry in container["volumeMounts"]} == {
        entry["name"] for entry in pod["spec"]["volumes"]
    }


def test_settings_are_those_of_the_server(pod: Any) -> None:
    [container] = pod["spec"]["containers"]
    settings = {entry["name"].removeprefix("CONSENSUSPR_").lower() for entry in container["env"]}
    assert settings <= set(ServerConfig.model_fields)
    delay = next(e["value"] for e in container["env"] if e["name"].endswith("DRAIN_DELAY_S"))
    grace = ServerConfig.model_fields["grace_s"].default
    # Workers that do not end are killed 5 s later; then the supervisor ends.
    assert pod["spec"]["terminationGracePeriodSeconds"] > float(delay) + grace + 5


def test_the_page_shows_what_the_servers_log(
    folder: Path, resources: dict[str, Any], pod: Any, tmp_path: Path
) -> None:
    page = resources["page Deployment"]["spec"]["template"]
    [container] = page["spec"]["containers"]
    assert page["metadata"]["labels"] == resources["page Service"]["spec"]["selector"]
    patch = resources["page Component"]["patches"][0]["patch"]
    added = [entry["value"] for entry in yaml.safe_load(patch)]
    log, mount, volume = added
    assert log == {"name": "CONSENSUSPR_SCORE_LOG", "value": mount["mountPath"]}
    assert container["args"][:2] == ["watch", mount["mountPath"]]
    claim = resources["page PersistentVolumeClaim"]["metadata"]["name"]
    volumes = {entry["name"]: entry for entry in page["spec"]["volumes"]}
    for each in (volume, volumes["scores"]):
        assert each["persistentVolumeClaim"]["claimName"] == claim
    assert {key: page["spec"]["securityContext"][key] for key in ("runAsUser", "fsGroup")} == {
        key: pod["spec"]["securityContext"][key] for key in ("runAsUser", "fsGroup")
    }
    if shutil.which("kubectl") is None:
        return
    # As an operator switches it on.
    shutil.copytree(folder, tmp_path / "all")
    for name in ("tokens", "tls.crt", "tls.key"):
        (tmp_path / "all" / name).touch()
    file = tmp_path / "all/kustomization.yaml"
    file.write_text(file.read_text().replace("# components", "components"))
    done = subprocess.run(["kubectl", "kustomize", file.parent], check=True, capture_output=True)
    made = [each for each in yaml.safe_load_all(done.stdout) if each["kind"] == "Deployment"]
    images = {each["spec"]["template"]["spec"]["containers"][0]["image"] for each in made}
    assert (len(made), len(images)) == (2, 1)


def test_a_server_starts_as_in_its_container(
    folder: Path, pod: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = re.search(r"```\n(consensuspr token .*?)```", (folder / "README.md").read_text(), re.S)
    assert steps is not None
    (tmp_path / "deploy/kubernetes").mkdir(parents=True)
    command = f"{shlex.quote(sys.executable)} -m consensuspr.cli token "
    script = steps[1].replace("consensuspr token ", command, 1)
    subprocess.run(["bash", "-ec", script], cwd=tmp_path, check=True, capture_output=True)
    made = tmp_path / "deploy/kubernetes"
    write_rows(tmp_path / "dataset.jsonl", [DUCKS])

    [container] = pod["spec"]["containers"]
    placed = {"/data": tmp_path, "/etc/consensuspr/tokens": made, "/etc/consensuspr/tls": made}
    assert placed.keys() <= {mount["mountPath"] for mount in container["volumeMounts"]}
    ports = {"50051": free_port(), "9464": free_port()}
    for entry in container["env"]:
        value = entry["value"]
        for there, here in placed.items():
            value = value.replace(f"{there}/", f"{here}/")
        for there, port in ports.items():
            value = value.replace(there, str(port))
        monkeypatch.setenv(entry["name"], value)
    monkeypatch.setenv("CONSENSUSPR_WORKERS", "1")
    with ExitStack() as running:
        process = ServeProcess(tmp_path, ["-m", "consensuspr.cli", *container["args"]])
        server = running.enter_context(closing(process.wait_until_listening()))
        # Else the client would read the same variables.
        for entry in container["env"]:
            monkeypatch.delenv(entry["name"])

        def page(path: str, **headers: str) -> int:
            unchecked = ssl._create_unverified_context()
            request = Request(f"https://127.0.0.1:{ports['9464']}{path}", headers=headers)
            try:
                with urlopen(request, timeout=20, context=unchecked) as answer:
                    return int(answer.status)
            except HTTPError as error:
                error.close()
                return error.code

        for probe in ("startup", "readiness", "liveness"):
            get = container[f"{probe}Probe"]["httpGet"]
            assert (get["scheme"], page(get["path"])) == ("HTTPS", 200)
        token = (made / "tokens").read_text().split()[0]
        assert page("/metrics") == 401
        assert page("/metrics", Authorization=f"Bearer {token}") == 200

        # By the name of the service, which the certificate has.
        name = f"consensuspr.NAMESPACE.svc:{ports['50051']}"
        dns = running.enter_context(closing(PlayedDns(name)))
        rollouts = [Rollout("ducks", DUCKS_SOLVED)]
        access = Access(token_file=made / "tokens", tls_ca=made / "ca.crt")
        with RewardClient(dns.target, timeout_s=20, access=access) as client:
            assert client.score(rollouts)[0].reward == 1.0
        stranger = Access(tls_ca=made / "ca.crt")
        with (
            RewardClient(dns.target, timeout_s=20, access=stranger) as client,
            pytest.raises(RewardServiceError, match="UNAUTHENTICATED"),
        ):
            client.score(rollouts)
        # Nothing but the scratch folder is written to.
        assert server.stop() == 0
