//! Databases: creation, deletion, lists, information and settings.

use std::borrow::Cow;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_auth::UserContext;
use settee_database::{AccessControl, Database, DatabaseInfo, Layout, Reader, Waiting, Work};
use settee_edge::etag;
use settee_model::json::{Value, append_object, write_array, write_string};
use settee_service::{Security, commits};
use settee_settings::{chttpd, couchdb, per_doc_access};

use super::all_docs;
use crate::node::Node;
use crate::params::Query;
use crate::params::view::{Source, ViewKind, ViewParams};
use crate::path::encode_path;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge, sequence};

const ENGINE: &str = "couch";

pub(super) async fn info(request: Request) -> Answer {
    let (database, reader) = (request.database()?, request.reader.clone());
    let mut out = Vec::new();
    let out = bridge::blocking(&request.threads, move || {
        write_info(&mut out, &database, &reader)?;
        Ok(out)
    })
    .await?;
    Ok(respond::json(StatusCode::OK, out))
}

/// A member learns the number of the documents that it sees, and no size.
fn info_for(database: &Arc<Database>, reader: &Reader) -> Result<DatabaseInfo, Error> {
    let info = database.info()?;
    if *reader == Reader::Administrator {
        return Ok(info);
    }
    let (doc_count, doc_del_count) = database.read_as(reader, Waiting::Allowed)?.counts()?;
    Ok(DatabaseInfo { doc_count, doc_del_count, file_bytes: 0, external_bytes: 0, active_bytes: 0, ..info })
}

pub(super) fn write_info(out: &mut Vec<u8>, database: &Arc<Database>, reader: &Reader) -> Result<(), Error> {
    let info = info_for(database, reader)?;
    append_object(out, |object| {
        object.string("instance_start_time", &(database.created_ms() / 1000).to_string());
        object.string("db_name", database.name());
        sequence::write(object.name("purge_seq"), database, info.purge_seq);
        sequence::write(object.name("update_seq"), database, info.update_seq);
        object.object("sizes", |sizes| {
            sizes.value("file", info.file_bytes).value("external", info.external_bytes);
            sizes.value("active", info.active_bytes);
        });
        object.object("props", |props| match database.layout() {
            Layout::Whole => {}
            Layout::Partitioned => _ = props.value("partitioned", true),
        });
        if database.access() == AccessControl::PerDocument {
            object.value("access", true);
        }
        object.value("doc_del_count", info.doc_del_count).value("doc_count", info.doc_count);
        object.value("disk_format_version", 8).value("compact_running", database.is_compacting());
        object.object("cluster", |cluster| {
            cluster.value("q", database.q()).value("n", 1).value("w", 1).value("r", 1);
        });
    });
    Ok(())
}

pub(super) async fn create(request: Request) -> Answer {
    let shape = Shape::of(&request.query, &request.node)?;
    let name = request.captures.get("db").to_owned();
    if shape.layout == Layout::Partitioned && is_system_name(&name) {
        return Err(Error::bad_request("Cannot partition a system database"));
    }
    let is_system = is_system_name(&name) || request.node.users.is_users_db(&name);
    if shape.access == AccessControl::PerDocument && is_system {
        return Err(Error::bad_request("A system database cannot have per-document access"));
    }
    let node = Arc::clone(&request.node);
    let created = name.clone();
    bridge::blocking(&request.threads, move || {
        Ok(node.databases.create_empty(&created, (shape.layout, shape.access), shape.q)?)
    })
    .await?;
    request.node.databases.add_rules_later(&name);
    let mut response = respond::ok(StatusCode::CREATED);
    let location = request.absolute(&format!("/{}", encode_path(&name)));
    respond::set(response.headers_mut(), header::LOCATION, &location);
    Ok(response)
}

const SYSTEM_NAMES: [&str; 6] = ["_dbs", "_global_changes", "_metadata", "_nodes", "_replicator", "_users"];

fn is_system_name(name: &str) -> bool {
    SYSTEM_NAMES.contains(&name.rsplit('/').next().unwrap_or_default())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    layout: Layout,
    access: AccessControl,
    q: u32,
}

impl Shape {
    /// Validates the parameters in CouchDB's order. All data is in one shard: `q` is only stored and reported,
    /// `n` and `placement` are only validated.
    fn of(query: &Query, node: &Node) -> Result<Self, Error> {
        let positive = |name: &str| match query.get(name) {
            None => Ok(None),
            Some(text) => {
                let number = text.parse::<u32>().ok().filter(|number| *number > 0);
                let refused = || Error::bad_request(format!("The `{name}` value should be a positive integer."));
                number.map(Some).ok_or_else(refused)
            }
        };
        // `n` has no effect, so that any integer is valid.
        let is_large = |text: &str| text.len() > 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !query.get("n").is_some_and(is_large) {
            positive("n")?;
        }
        let q = positive("q")?;
        if query.get("placement").is_some_and(|placement| !is_placement(placement)) {
            return Err(Error::bad_request("The `placement` value should be in a format `zone:n`."));
        }
        if query.get("engine").is_some_and(|engine| engine != ENGINE) {
            return Err(Error::bad_request("invalid_engine_extension"));
        }
        let layout = match query.get("partitioned") {
            None | Some("false") => Layout::Whole,
            Some("true") => Layout::Partitioned,
            Some(_) => return Err(Error::bad_request("Invalid `partitioned` parameter")),
        };
        let access = match query.get("access") {
            None | Some("false") => AccessControl::PerDatabase,
            Some("true") if per_doc_access::ENABLE.of(&*node.settings) => AccessControl::PerDocument,
            Some("true") => {
                let reason = "The `access` option is not available on this CouchDB installation.";
                return Err(Error::bad_request(reason));
            }
            Some(_) => return Err(Error::bad_request("The `access` value should be a boolean.")),
        };
        Ok(Self { layout, access, q: q.unwrap_or_else(|| node.databases.default_q()) })
    }
}

/// Returns true for a list of zones with numbers of copies, such as `metro-a:2,metro-b:1`.
fn is_placement(text: &str) -> bool {
    let rules = || text.split(',').filter(|rule| !rule.is_empty());
    let is_rule = |rule: &str| match rule.split(':').filter(|part| !part.is_empty()).collect::<Vec<_>>()[..] {
        [_, copies] => copies.parse::<u32>().is_ok_and(|copies| copies > 0),
        _ => false,
    };
    !text.is_empty() && rules().all(is_rule)
}

pub(super) async fn delete(request: Request) -> Answer {
    if request.query.get("rev").is_some() {
        return Err(Error::bad_request(
            "You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?",
        ));
    }
    let name = request.captures.get("db").to_owned();
    let node = Arc::clone(&request.node);
    bridge::blocking(&request.threads, move || Ok(node.databases.delete(&name)?)).await?;
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn all(request: Request) -> Answer {
    let params = list_params(&request)?;
    let node = Arc::clone(&request.node);
    let names = bridge::blocking(&request.threads, move || Ok(select(node.catalog.names()?, &params))).await?;
    let mut out = Vec::new();
    write_array(&mut out, &names, |out, name| write_string(out, name));
    let mut hasher = DefaultHasher::new();
    out.hash(&mut hasher);
    let tag = format!("{:016x}", hasher.finish());
    let mut response =
        if etag::knows(&request.headers, &tag) { etag::not_modified() } else { respond::json(StatusCode::OK, out) };
    respond::set_etag(&mut response, &tag);
    Ok(response)
}

/// CouchDB reads these as for documents without partitions, but a single element of `keys` is `key`, as in a view.
fn list_params(request: &Request) -> Result<ViewParams, Error> {
    let mut params = ViewParams::from_query(&request.query, Source::View)?;
    params.check(ViewKind::Documents(Layout::Whole), request.node.settings.as_ref())?;
    Ok(params)
}

/// `names` must be sorted.
fn select(mut names: Vec<String>, params: &ViewParams) -> Vec<String> {
    if let Some(keys) = params.key_list() {
        let keys = all_docs::asked(params, &keys).iter().filter_map(|key| key.value().as_str());
        let there = |key: &Cow<'_, str>| names.binary_search_by(|name| name.as_str().cmp(key)).is_ok();
        return keys.filter(there).map(Cow::into_owned).collect();
    }
    let range = all_docs::id_range(params);
    if params.descending {
        names.reverse();
    }
    names.retain(|name| range.contains(name));
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    names.into_iter().skip(number(params.skip)).take(number(params.limit.unwrap_or(u64::MAX))).collect()
}

fn json_string(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_string(&mut out, text);
    out
}

pub(super) async fn info_of_range(request: Request) -> Answer {
    let params = list_params(&request)?;
    let (node, user) = (Arc::clone(&request.node), request.user.clone());
    bridge::stream(request.admit_response(), move |output| {
        let names = select(node.catalog.names()?, &params);
        let keys: Vec<Vec<u8>> = names.iter().map(|name| json_string(name)).collect();
        let keys = keys.iter().zip(&names).map(|(key, name)| (key.as_slice(), Some(name.as_str().into())));
        write_infos(output.text(), &node.catalog, &user, keys)
    })
    .await
}

pub(super) async fn info_of_keys(mut request: Request) -> Answer {
    let body = request.read_called_json().await?;
    if !body.value().is_object() {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    let keys = body.value().get("keys").ok_or_else(|| Error::bad_request("`keys` member must exist."))?;
    if !keys.is_array() {
        return Err(Error::bad_request("`keys` member must be an array."));
    }
    let most = chttpd::MAX_DB_NUMBER_FOR_DBS_INFO_REQ.of(&*request.node.settings);
    if keys.elements().count() as u64 > most {
        return Err(Error::bad_request("too_many_keys"));
    }
    let (node, user) = (Arc::clone(&request.node), request.user.clone());
    bridge::stream(request.admit_response(), move |output| {
        let keys = body.value().get("keys").into_iter().flat_map(Value::elements);
        write_infos(output.text(), &node.catalog, &user, keys.map(|key| (key.raw(), key.as_str())))
    })
    .await
}

fn write_infos<'k>(
    out: &mut Vec<u8>,
    catalog: &settee_database::Catalog,
    user: &UserContext,
    keys: impl Iterator<Item = (&'k [u8], Option<Cow<'k, str>>)>,
) -> Result<(), Error> {
    out.push(b'[');
    for (index, (key, name)) in keys.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"key":"#);
        out.extend_from_slice(key);
        match name.and_then(|name| catalog.database(&name).ok()) {
            Some(database) => {
                out.extend_from_slice(br#","info":"#);
                write_info(out, &database, &settee_service::reader(&database, user)?)?;
            }
            None => out.extend_from_slice(br#","error":"not_found""#),
        }
        out.push(b'}');
    }
    out.extend_from_slice(b"]\n");
    Ok(())
}

pub(super) async fn security(request: Request) -> Answer {
    let database = request.database()?;
    let security = bridge::blocking(&request.threads, move || Ok(settee_service::security(&database)?)).await?;
    Ok(respond::json(StatusCode::OK, security.into_bytes()))
}

pub(super) async fn set_security(mut request: Request) -> Answer {
    let database = request.database()?;
    if request.node.users.is_users_db(database.name())
        && !couchdb::USERS_DB_SECURITY_EDITABLE.of(&*request.node.settings)
    {
        return Err(Error::forbidden("You can't edit the security object of the user database."));
    }
    let security = Security::parse(request.read_json().await?)?;
    commits::commit(&database, vec![Work::SetSecurity(security.into_json())]).await?;
    Ok(respond::ok(StatusCode::OK))
}

pub(super) async fn revs_limit(request: Request) -> Answer {
    let database = request.database()?;
    let limit = bridge::blocking(&request.threads, move || Ok(database.revs_limit()?)).await?;
    Ok(respond::json(StatusCode::OK, limit.to_string().into_bytes()))
}

pub(super) async fn set_revs_limit(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_json().await?;
    let limit = body.value().as_u64().filter(|limit| *limit > 0);
    let limit = limit.ok_or_else(|| Error::bad_request("`_revs_limit` must be a positive integer"))?;
    commits::commit(&database, vec![Work::SetRevsLimit(limit)]).await?;
    Ok(respond::ok(StatusCode::OK))
}

/// Has no effect, because every acknowledged write is durable.
pub(super) async fn ensure_full_commit(request: Request) -> Answer {
    crate::body::require_json(&request.headers)?;
    let database = request.database()?;
    let created_s = (database.created_ms() / 1000).to_string();
    Ok(respond::object(StatusCode::CREATED, |object| {
        object.value("ok", true).string("instance_start_time", &created_s);
    }))
}
