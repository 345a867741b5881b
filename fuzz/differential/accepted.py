"""Differences that are deliberate, each with its line in COMPAT.md or the reason why the answers cannot be the same."""

import re

# A pattern over method, route and the kind of the difference, and the reason.
ACCEPTED = [
    (r"(?s)(_find|_explain|_index)\S* \| error 400 (\w+): .*and \2: ", "COMPAT: values in refusals of Mango are JSON"),
    (r"error 4\d\d (\w+): .*TERM and \1: ", "COMPAT: values in error messages are JSON"),
    (r"error 400 compilation_error: .*and compilation_error: ", "COMPAT: texts of syntax errors are the engine's own"),
    (r"_explain \| body 200 +/selector_hints", "COMPAT: text search is on"),
    (r"_(find|explain) \| status 200 +and 400 no_usable_index: The operator \$text", "COMPAT: $text without a text index is refused"),
    (r"_purged_infos \| body 200 +/purged_infos/#/(id|revs)", "COMPAT: the order of purges"),
    (r"_find \| error 400 (query_parse_error|bad_arg|invalid_field_name): .* and no_usable_index: The operator \$text", "COMPAT: of several faults another one is named"),
    (r"_find \| body 200 +/execution_stats/total_(keys|docs)_examined", "COMPAT: statistics of _find count design documents"),
    (r"_index \| status 200 +and 400 invalid_field_name: ", "COMPAT: an index over a field with an empty part"),
    (r"_find \| status 200 +and 400 invalid_field_name: ", "COMPAT: names of fields are validated before documents are read"),
    (r"_index \| error 400 invalid_ddoc_lang: .* and bad_request|_bulk_delete \| error 400 invalid_bulk_docs: .* and invalid_key", "COMPAT: of several faults another one is named"),
    (r"\{att\} \| status (404|409) .*and 400 (illegal_docid|bad_request: Attachment name)", "COMPAT: of several faults another one is named"),
    (r"\{doc\} \| status 404 not_found: missing and 400 bad_request: Attachment name", "COMPAT: of several faults another one is named"),
    (r"(db|doc|ddoc|local)\}\S* \| (error|status) 400 (doc_validation|bad_request|illegal_docid): .* and (400 )?(doc_validation|bad_request): ", "COMPAT: of several faults another one is named"),
    (r"_changes \| error 400 .* and bad_request: (Malformed sequence|Supported)|_bulk_get \| error 400 bad_request: Missing JSON list",  "COMPAT: of several faults another one is named"),
    (r"/\{db\} \| (status 412 file_exists|error 400 illegal_database_name): .* and (400 )?bad_request: The '…' value", "COMPAT: of several faults another one is named"),
    (r"/(_all_dbs|_dbs_info|_scheduler/docs) \| error 400 query_parse_error: .* and bad_request: invalid UTF-N JSON", "COMPAT: of several faults another one is named"),
    (r"/_(show|update|list|rewrite)/\S* \| status 20\d .*and (400 bad_request: Request body is not properly gzipped|415 bad_content_type: .* content encoding)", "COMPAT: functions receive decompressed bodies"),
    (r"status 20[12] .*and 409 conflict|_bulk_docs \| body 20[12] +/#/(ok|error) missing",
     "COMPAT: an edit that names a revision of a document that is not there is a conflict"),
    (r"status 202 +and (40[014]|412 missing_stub)", "COMPAT: with batch=ok documents are validated before the answer"),
    (r"_design/\S* \| status 409 conflict.*and 40[04] |(doc|ddoc)\}\S* \| status 409 conflict.* and 400 bad_request: (The data of a|a|Invalid a)ttachment",
     "COMPAT: of several faults the first that is validated is named"),
    (r"(_list|_view|_show|_update)\S* \| (status|error) 40[04] .*and (400|404|405|415|bad_request|query_parse_error|list_error)", "COMPAT: of several faults another one is named"),
    (r"_bulk_docs \| error 400 (bad_request|doc_validation|illegal_docid|illegal_partition): .* and (bad_request|doc_validation|illegal_docid|illegal_partition): ", "COMPAT: of several faults another one is named"),
    (r"_find \| error 400 \w+: .* and (query_parse_error|invalid_field_name)", "COMPAT: of several faults another one is named"),
    (r"/queries \| status (200|400|404) .*and 415 ", "COMPAT: posts must be JSON"),
    (r"_index/\S* \| status (200|404) .*and 40[13] ", "COMPAT: an index is deleted by administrators"),
    (r"\{att\} \| status 400 bad_request: Invalid rev format and 401 |/queries \| error 400 query_parse_error: .* and query_parse_error: ", "COMPAT: of several faults another one is named"),
    (r"(_revs_limit|_purged_infos_limit) \| status 200 +and 400 ", "COMPAT: limits have 64 bits"),
    (r"_local_docs\S* \| (body 200 .*(elements|rows|/id|/key)|header)", "COMPAT: indexes keep no local documents"),
    (r"/_node/\{rest\} \| status 4", "COMPAT: names of nodes"),
    (r"/_dbs_info \| header etag", "COMPAT: no tag"),
    (r"_missing_revs \| body 200 .*order of members|_revs_diff \| body 200 .*order of members", "the order of members of these answers depends on a hash"),
    (r"\| header content-type of 301|\| header cache-control of 30[14]", "no body, no meaning"),
    (r"_scheduler/(jobs|docs)\S* \| body 200", "jobs of other clients of the servers"),
    (r"_scheduler/docs \| error 400 query_parse_error", "which text depends on the atoms that the Erlang machine has seen"),
    (r"_replicate \| status (open|500|crash)", "CouchDB retries endpoints that cannot be opened"),
    (r"_replicate \| (status|body|error) (200|404)", "replication depends on the addresses of the servers"),
    (r"_security \| status 500 error: no_majority", "COMPAT: a malformed value is answered 400"),
    (r"_session \| header set-cookie", "times"),
    (r"_list/\S* \| status 200 +and 202 ", "COMPAT: the code of a list function without output"),
    (r"_missing_revs \| body 200 +/missing_revs/\S+ missing|_revs_diff \| body 200 +/\S+ missing", "COMPAT: a revision that is listed twice"),
    (r"_bulk_get \| .*/error/rev: ('(N-\w+|x)'|null) and '\+N-", "COMPAT: generations of any size and with a sign"),
    (r"COPY \S* \| status 404 .*and 400 bad_request: Invalid rev format", "COMPAT: of several faults another one is named"),
    (r"_reshard\S* \| body 200 +/state", "COMPAT: no jobs exist"),
    (r"_find \| error 400 illegal_partition: .* and invalid_\w+: |_replicate \| status 401 .*and 415 ", "COMPAT: of several faults another one is named"),
    (r"(doc|ddoc)\}\S* \| error 400 (invalid_design_doc|bad_request): .* and (invalid_design_doc|bad_request): ", "COMPAT: of several faults another one is named"),
    (r"_find \| error 400 bad_arg: .* and invalid_operator", "COMPAT: of several faults another one is named"),
    (r"ddoc\}\S* \| status 400 .* and 401 unauthorized: You are not a db or server admin", "COMPAT: of several faults another one is named"),
    (r"/queries \| error 400 query_parse_error: .* and bad_request: Request body must be a JSON object", "COMPAT: of several faults another one is named"),
    (r"_reshard/jobs \| (error 400 bad_request: Not connected to|status (20[12]|500) .*and 501 )", "COMPAT: no jobs exist"),
    (r"error 400 illegal_partition: Partition must not be empty and query_parse_error", "COMPAT: of several faults another one is named"),
    (r"ddoc\}\S* \| (error|status) 400 bad_request: When .* and (compilation_error|404 )|doc\}\S* \| status 400 bad_request: .* and 403 forbidden: You are not a db or server admin", "COMPAT: of several faults another one is named"),
    (r"_replicate \| status 403 forbidden: .* and 400 invalid_replication|(_revs_diff|_missing_revs) \| error 400 bad_request: Invalid rev format and illegal_docid", "COMPAT: of several faults another one is named"),
    (r"_bulk_docs \| status 20[12] +and 400 bad_request: The data of attachment|/queries \| error 400 query_parse_error: .* and illegal_partition", "COMPAT: of several faults another one is named"),
    (r"status 400 bad_request: invalid UTF-N JSON and 401 ", "COMPAT: of several faults another one is named"),
    (r"_replicate \| status 415 .* and 400 bad_request: invalid UTF-N JSON", "COMPAT: of several faults another one is named"),
    (r"_temp_view \| status 410 ", "COMPAT: temporary views"),
    (r"_replicate \| error 400 (invalid_replication|bad_request): .* and bad_request: parameter", "COMPAT: of several faults another one is named"),
    (r"HEAD \S*_changes \| status RemoteDisconnected", "CouchDB closes the connection of a feed that fails after its headers"),
    (r"\{att\} \| status 400 bad_request: Attachment name .* and 404 not_found", "COMPAT: of several faults another one is named"),
    (r"error 415 bad_content_type: .* and bad_content_type: ", "COMPAT: of several faults another one is named"),
    (r"\{(doc|ddoc|att)\} \| status (404|409) .*and (401 unauthorized|403 forbidden): You are not a db or server admin", "COMPAT: of several faults another one is named"),
    (r"_explain \| status 200 +and 400 invalid_field: Invalid JSON for field spec", "COMPAT: a malformed value is answered 400 (_find crashes)"),
    (r"_bulk_delete \| status 404 invalid_index: JSON index .* and 200 ", "CouchDB's answer to an id that is listed twice depends on timing; mostly it fails"),
    (r"_find \| body 200 +/warning: .*The number of documents and", "COMPAT: statistics of _find count design documents"),
    (r"(_bulk_docs|\{doc\}) \| status (417 +|400 (doc_validation|bad_request|illegal_docid): .*)and 412 missing_stub|/\{db\} \| status 409 conflict.* and 400 bad_request: (The data of a|a|Invalid a)ttachment", "COMPAT: of several faults another one is named"),
    (r"\{att\} \| status (404|409) .*and 400 illegal_partition|\{doc\} \| status 409 not_found: missing_rev and 400 bad_request: _local documents", "COMPAT: of several faults another one is named"),
    (r"_index \| error 400 (invalid_partitioned_option: .* and bad_request: '…' option cannot be true|invalid_ddoc_lang: .* and invalid_field_name)", "COMPAT: of several faults another one is named"),
    (r"_changes \| status (404 .*and 400 (bad_request: (Malformed sequence|Supported)|$)|200 +and 400 bad_request: invalid UTF-N JSON)|\{ddoc\} \| status 400 compilation_error: .* and 404 not_found: missing function", "COMPAT: of several faults another one is named"),
    (r"_explain \| error 400 bad_arg: .* and invalid_boolean", "COMPAT: of several faults another one is named"),
    (r"\{ddoc\} \| error 400 compilation_error: .* and invalid_design_doc|_bulk_docs \| status 400 bad_request: Attachment name .* and 201 ", "COMPAT: of several faults another one is named"),
    (r"/queries \| status 200 +and 400 query_parse_error: No rows can match", "COMPAT: of several faults another one is named"),
    (r"_replicate \| status 403 forbidden: .* and 500 replication_error: .*only admins may replicate", "COMPAT: users reach public addresses only"),
    (r"_dbs_info \| body 200 +/#/info/cluster/q: 2 and 1", "COMPAT: the default of q"),
    (r"_replicate \| status 403 forbidden: .* and (401 unauthorized: unauthorized to access|400 bad_request: parameter)", "COMPAT: of several faults another one is named"),
    (r"error 400 illegal_partition: .* and bad_request: invalid UTF-N JSON", "COMPAT: of several faults another one is named"),
    (r"PUT \S*\{(doc|ddoc)\} \| status 200 +and 409 conflict: Document update conflict", "COMPAT: an edit that names a revision of a document that is not there is a conflict"),
    (r"#related \| status (20[12]|open) .*and 400 bad_request: More attachments follow", "COMPAT: superfluous parts of a multipart document"),
    (r"_view/\S* \| body 200 .*/caused_by: ", "COMPAT: which of several values that cannot be added an error of _sum names"),
    (r"#related \| status 409 conflict.* and 400 bad_request: (Invalid|More|The data of) attachment|_explain \| error 400 invalid_boolean: .* and invalid_field", "COMPAT: of several faults another one is named"),
    (r"_changes \| rows /#(/results/#)?/doc/_conflicts missing", "COMPAT: an empty _conflicts"),
    (r"error 400 bad_request: Invalid attachment .* and illegal_docid", "COMPAT: of several faults another one is named"),
    (r"PUT \S*#related \| status open .*and ", "COMPAT: multipart/related with an empty _attachments"),
    (r"/_revs_info/#/status: 'available' and 'missing'", "a compaction that was requested before ends later in CouchDB (timing)"),
]

# The other lines of a warning may be longer than the text that a difference shows.
EXAMINED = b"The number of documents examined is high"


def reason(request, answers, found, renumbered):
    """Returns why a difference is accepted, or None. `renumbered` is true if the database has had a change that only CouchDB numbers."""
    text = f"{request.method} {request.route} | {found}"
    asked = request.url() + (request.body or "")
    if "_design/{ddoc}/" in request.route and found.startswith(("body 20", "text 20")) and re.search(r"stale|update\W{1,3}(false|lazy)", asked):
        return "COMPAT: views of a design document have indexes of their own, which stale reads show"
    if "/_view/" in request.route and "keys" in asked and re.search(r"body 200 +/(results/#/)?offset", found):
        return "COMPAT: offsets of views queried with keys"
    if request.route.endswith("_find") and found.startswith("body 200") and "/warning" in found and EXAMINED in answers[0].body and EXAMINED not in answers[1].body:
        return "COMPAT: statistics of _find count design documents"
    if request.route.endswith("_find") and '"limit":0' in asked and re.search(r"body 200 +/warning", found):
        return "COMPAT: a limit of 0 reads no documents"
    if re.search(r"_(find|explain)$", request.route) and re.match(r"body 200|status 200 +and 400 invalid_index", found) and re.search(r'"\$(or|and|nor)":\[\]', asked):
        return "COMPAT: an empty $or makes no index usable"
    if re.search(r"(%2B|\+)1-abc|9{25}", asked) and re.search(r"400 .*and (400 )?(bad_request: Invalid rev format|404 not_found: missing)|status 40[049]  and 40[04] $|and 404 not_found: missing|'missing' and 'Invalid rev format'", found):
        return "COMPAT: generations of any size and with a sign"
    if re.search("9{25}", asked) and found == "status 200  and 400 bad_request: Invalid rev format":
        return "COMPAT: generations of any size and with a sign"
    if re.search(r"(%2B|\+)1-abc|9{25}", asked) and re.search(r"_bulk_get \| .*/error/rev: (1|'x'|null) and|status 20[01] +and 40[04] ?(bad_request: Invalid rev format)?$", text):
        return "COMPAT: generations of any size and with a sign"
    if "/_view/raw" in asked and re.search(r"_partition/|[?&\"]partition\W", asked) and re.search(r"body 200 +/(rows|offset)|query_parse_error: No rows can match", found):
        return "COMPAT: raw collation in a partition"
    if "_local%2F" in asked and request.route.endswith(("{att}", "{doc}")) and re.search(r"and 400 (bad_request: _local documents|$)", found):
        return "COMPAT: local documents have no attachments"
    if "{seq}x" in asked and re.search(r"status 200 +and 400 (bad_request: Malformed sequence|$)", found):
        return "the length of the term decides whether a letter can follow it"
    if "/_all_docs" in request.route and "keys" in asked and answers[0].status in (400, 500) and b'"not_found"' in answers[1].body + (b'"not_found"' if request.method == "HEAD" else b""):
        return "COMPAT: keys that are not strings in a partitioned database"
    if request.route.endswith("_bulk_docs") and found == "status 202  and 201 " and b'"conflict"' in answers[1].body:
        return "COMPAT: an edit that names a revision of a document that is not there is a conflict"
    if re.search(r'"_revisions":\{[^}]*"ids":\[\]', asked):
        return "COMPAT: revisions without ids"
    if renumbered and request.route.startswith("(end) /{db}/_changes") and re.search(r"body 200 +/results/", found):
        return "COMPAT: a rejected edit of a document with shortened histories"
    if "_changes" in request.route and "limit" in asked and re.search("filter|doc_ids|selector", asked) and re.search("/(last_seq|pending): ", found):
        return "COMPAT: last_seq of a feed with a limit and a filter"
    if renumbered and "conf" in asked and re.search(r"body 200 +/(results/)?#/.*ok/", found):
        return "COMPAT: the order of leaf revisions after their histories were shortened"
    if re.search(r"(%2B|\+)1-abc|9{25}", asked + str(request.headers)) and re.search(r"status (404|409) .*and 400 (bad_request: Invalid rev format)?$", found):
        return "COMPAT: generations of any size and with a sign"
    if request.route.endswith("_find") and found.startswith("body 200") and found.endswith(" /bookmark extra") and '"_id":{' in asked:
        return "COMPAT: ranges of ids are those of their bytes"
    if "/_all_docs/queries" in request.route and "keys" in asked and found.startswith("text 200") and b"not_found" in answers[1].body:
        return "COMPAT: keys that are not strings in a partitioned database"
    if request.route.endswith("_find") and found.startswith("body 200") and re.search(r'"update":(false|"lazy")', asked):
        return "COMPAT: views of a design document have indexes of their own, which stale reads show"
    if "/_view/" in request.route and re.search(r"sorted\W{1,3}false", asked) and "skip" in asked and re.search(r"body 200 +/(results/#/)?rows", found):
        return "COMPAT: skip with sorted=false"
    if "keys" in asked and "/_view/" in request.route and re.search(r"status 400 query_parse_error: No rows can match .* and 200 ", found):
        return "COMPAT: an empty list of keys with a reversed range"
    if request.route.endswith("_changes") and "limit=0" in asked and "feed=longpoll" in asked and found.startswith(("text 200", "header (open)", "rows /#/pending")):
        return "COMPAT: a longpoll feed with limit=0 waits"
    if request.route == "(feed) /{db}/_changes" and "filter=d%2Fslow" in asked and re.match(r"rows .* \d+ and \d+ elements", found):
        return "a change that is written while a slow filter runs is part of the same scan or of the next one (timing)"
    if request.route == "(feed) /_db_updates" and "feed=eventsource" in asked and found.startswith(("header (open)", "header (broken)", "rows")):
        return "COMPAT: _db_updates as eventsource"
    if request.route == "(feed) /{db}/_changes" and "descending=true" in asked and re.search("filter=_d|feed=eventsource", asked):
        return "COMPAT: continuous feeds in descending order"
    if request.route.startswith("(feed)") and "filter=" in asked and found == "header (broken) of 200: 'yes' and ''":
        return "CouchDB breaks off a feed whose database is deleted while a filter runs"
    if "timeout=-" in asked and found.startswith("status RemoteDisconnected  and "):
        return "COMPAT: a negative timeout of a feed that waits"
    if "filter=" in asked and re.search(r"_changes \| status 200 +and 400 bad_request: invalid UTF-N JSON", text):
        return "COMPAT: a malformed value is answered 400 (a filter that is not called does not read it)"
    if re.search(r'"ids":\[[^\]]*\[', asked) and "doc_validation: RevId isn't a string" in found:
        return "COMPAT: ids of revisions that are arrays"
    if '"language":"query"' in asked and '"validate_doc_update":{' in asked and re.search(r"\{ddoc\} \| status 400 invalid_design_doc: .* and 201 ", text):
        return "COMPAT: validate_doc_update as a selector"
    if renumbered and re.search(r"/_design/\S* \| (status 200 +and 404 not_found: missing$|error 404 .* and not_found: missing$|body 200 +/(total_rows|rows|offset))", text):
        return "COMPAT: purged design documents, and purges that find nothing"
    if "/_view/" in request.route and "update_seq" in asked and re.search(r"/update_seq: 'N-' and 'N-'$", found):
        return "COMPAT: the update sequence of a view that is being built (timing)"
    if renumbered and re.search(r"'N-' and 'N-'$", found):
        return "COMPAT: update sequences count no settings"
    if request.route in ("/_all_dbs", "/_dbs_info") and found.startswith("body 200") and "{db}" not in asked:
        return "databases of other clients of the servers"
    return next((why for pattern, why in ACCEPTED if re.search(pattern, text)), None)
