#!/usr/bin/python3
"""Prints the bill of materials of a release as SPDX 2.3 (JSON): each file of the release, and each Debian package whose
library the binary of the package `rollgate` loads.

    scripts/make_bill.py FOLDER VERSION     (FOLDER: that of scripts/release)
"""
import datetime
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile

LICENSE = "Apache-2.0"


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def spdx_id(name):
    return "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def artefact(path, version):
    name = os.path.basename(path)
    return {"SPDXID": spdx_id(name), "name": name, "versionInfo": version, "packageFileName": name,
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False,
            "checksums": [{"algorithm": "SHA256", "checksumValue": sha256(path)}],
            "licenseConcluded": LICENSE, "licenseDeclared": LICENSE, "copyrightText": "NOASSERTION"}


def libraries(deb):
    """(Debian package, version, architecture) of each shared library that the binary loads, also through others."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["dpkg-deb", "-x", deb, folder], check=True)
        paths = re.findall(r"(/\S+) \(0x", run("ldd", f"{folder}/usr/bin/rollgate"))
    found = set()
    for path in paths:
        owner = run("dpkg-query", "-S", f"*{os.path.basename(os.path.realpath(path))}").split("\n")[0].rsplit(": ", 1)[0]
        found.add(tuple(run("dpkg-query", "-W", "-f", "${Package} ${Version} ${Architecture}", owner.split(", ")[0]).split()))
    return sorted(found)


def library(name, version, architecture):
    purl = f"pkg:deb/debian/{name}@{version.replace(':', '%3A')}?arch={architecture}&distro=bookworm"
    return {"SPDXID": spdx_id(f"debian-{name}"), "name": name, "versionInfo": version, "supplier": "Organization: Debian",
            "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
            "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION",
            "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                              "referenceLocator": purl}]}


def main(folder, version):
    names = sorted(name for name in os.listdir(folder) if name.endswith((".deb", ".whl", ".tar.gz", ".tar.xz")))
    artefacts = [artefact(os.path.join(folder, name), version) for name in names]
    deb = next(name for name in names if re.match(r"rollgate_.*\.deb$", name))
    loaded = [library(*row) for row in libraries(os.path.join(folder, deb))]
    source = next(name for name in names if name.endswith(".tar.xz"))
    moment = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", a["SPDXID"]) for a in artefacts]
    relations += [(a["SPDXID"], "GENERATED_FROM", spdx_id(source)) for a in artefacts if a["name"] != source]
    relations += [(spdx_id(deb), "DYNAMIC_LINK", item["SPDXID"]) for item in loaded]
    digest = hashlib.sha256("".join(a["checksums"][0]["checksumValue"] for a in artefacts).encode()).hexdigest()
    json.dump({"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"rollgate-{version}",
               "documentNamespace": f"urn:rollgate:spdx:{version}:{digest}",
               "creationInfo": {"created": moment.strftime("%Y-%m-%dT%H:%M:%SZ"),
                                "creators": ["Tool: rollgate-scripts/make_bill.py"]},
               "packages": artefacts + loaded,
               "relationships": [{"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
                                 for a, kind, b in relations]},
              sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main(*sys.argv[1:])
