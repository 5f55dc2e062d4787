"""Turn drafts with their bibliographies into a data set for training.

    python reproduce/drafts.py drafts.json.gz FOLDER

Input: {draft: {"title", "papers": {key: paper}, "contexts": [{"text": "by [CITE]", "positive": [key]}]}}.
"""

import gzip
import json
import sys
from pathlib import Path

source, folder = map(Path, sys.argv[1:])
if not source.is_file():
    raise SystemExit(f"error: {source}: no such file of drafts")
papers, contexts, train = {}, {}, []
for name, draft in json.loads(gzip.decompress(source.read_bytes())).items():
    papers[name] = {"title": draft["title"] or name.split("/")[1]}
    ids = {key: f"{name}/{number}" for number, key in enumerate(draft["papers"])}
    papers |= {ids[key]: paper for key, paper in draft["papers"].items()}
    for number, context in enumerate(draft["contexts"]):
        text = context["text"].replace("[CITE]", "TARGETCIT")
        contexts[f"{name}#{number}"] = {"masked_text": text, "citing_id": name}
        cited = [ids[key] for key in context["positive"]]
        train.append({"context_id": f"{name}#{number}", "positive_ids": cited})
folder.mkdir(parents=True, exist_ok=True)
for part, content in (("papers", papers), ("contexts", contexts), ("train", train)):
    (folder / f"{part}.json").write_text(json.dumps(content))
