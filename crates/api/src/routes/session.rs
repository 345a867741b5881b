//! Sessions: `/_session`.

use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use settee_settings::Persist;

use crate::authentication::{self, login};
use crate::params::Query;
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, bridge};

pub(super) async fn get(request: Request) -> Answer {
    if request.user.name.is_none() && request.query.get("basic") == Some("true") {
        return Err(Error::unauthorized("Please login."));
    }
    let policy = request.node.auth_policy();
    let users_db = request.node.settings.get("chttpd_auth", "authentication_db");
    Ok(respond::object(StatusCode::OK, |object| {
        object.value("ok", true).object("userCtx", |context| {
            context.string_or_null("name", request.user.name.as_deref()).strings("roles", &request.user.roles);
        });
        object.object("info", |info| {
            info.strings("authentication_handlers", policy.handlers.iter().map(|handler| handler.name()));
            if let Some(handler) = request.head.handler {
                info.string("authenticated", handler.name());
            }
            if let Some(users_db) = &users_db {
                info.string("authentication_db", users_db);
            }
        });
    }))
}

#[derive(Default)]
struct Form {
    name: Option<String>,
    username: Option<String>,
    password: String,
    token: String,
}

pub(super) async fn post(mut request: Request) -> Answer {
    let form = read_form(&mut request).await?;
    let name = match (form.name, form.username) {
        (None, None) => return Err(Error::bad_request("request body must contain a username")),
        (Some(name), Some(username)) if name != username => {
            return Err(Error::bad_request("request body contains different usernames"));
        }
        (Some(name), _) | (None, Some(name)) => name,
    };
    let (node, policy) = (&request.node, request.node.auth_policy());
    let peer = request.head.peer;
    let account =
        match login::session(&node.authentication, &policy, peer, &name, form.password.into_bytes(), &form.token).await
        {
            Ok(account) => account,
            Err(error) if error.status == StatusCode::UNAUTHORIZED => {
                let mut response = respond::error(&error);
                set_cookie(&mut response, authentication::clear(&node.authentication, &policy, &request.head));
                return redirected(&request, "fail", response);
            }
            Err(error) => return Err(error),
        };
    let secret = secret(&request).await?;
    let mut response = respond::object(StatusCode::OK, |object| {
        object.value("ok", true).string("name", &name).strings("roles", &account.context().roles);
    });
    set_cookie(&mut response, authentication::issue(&node.authentication, &policy, &request.head, &secret, &account));
    redirected(&request, "next", response)
}

pub(super) async fn delete(request: Request) -> Answer {
    let mut response = respond::ok(StatusCode::OK);
    set_cookie(
        &mut response,
        authentication::clear(&request.node.authentication, &request.node.auth_policy(), &request.head),
    );
    redirected(&request, "next", response)
}

async fn read_form(request: &mut Request) -> Result<Form, Error> {
    // As in CouchDB the names of content types are compared with case.
    let content_type = request.header(header::CONTENT_TYPE).unwrap_or_default().to_owned();
    let mut form = Form::default();
    if content_type.starts_with("application/x-www-form-urlencoded") {
        let body = request.read_body().await?;
        let text = std::str::from_utf8(&body).map_err(|_| Error::bad_request("The form is not valid UTF-8."))?;
        let query = Query::parse(Some(text.trim()))?;
        let field = |name: &str| query.get(name).map(str::to_owned);
        form = Form {
            name: field("name"),
            username: field("username"),
            password: field("password").unwrap_or_default(),
            token: field("token").unwrap_or_default(),
        };
    } else if content_type.starts_with("application/json") {
        let body = request.read_json_or_empty().await?;
        if !body.value().is_object() {
            return Err(Error::bad_request("Request body must be a JSON object"));
        }
        let member = |name: &str| match body.value().get(name).filter(|value| !value.is_null()) {
            None => Ok(None),
            Some(value) => {
                let text = value.as_str().map(std::borrow::Cow::into_owned);
                text.map(Some).ok_or_else(|| Error::bad_request(format!("`{name}` must be a string.")))
            }
        };
        form.name = member("name")?;
        form.username = member("username")?;
        form.password = member("password")?.unwrap_or_default();
        form.token = member("token")?.unwrap_or_default();
    } else {
        let reason = "Content-Type must be 'application/x-www-form-urlencoded' or 'application/json'";
        return Err(Error::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type", reason));
    }
    Ok(form)
}

async fn secret(request: &Request) -> Result<String, Error> {
    let node = std::sync::Arc::clone(&request.node);
    if let Some(secret) = &node.auth_policy().secret {
        return Ok(secret.clone());
    }
    bridge::blocking(&request.threads, move || {
        let _making = node.making_secret.lock();
        // A concurrent login may have created it.
        if let Some(secret) = &node.auth_policy().secret {
            return Ok(secret.clone());
        }
        let secret = node.random_hex();
        node.settings.set("chttpd_auth", "secret", &secret, Persist::Yes)?;
        Ok(secret)
    })
    .await
}

fn set_cookie(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
}

/// Only paths of this server are accepted.
fn redirected(request: &Request, parameter: &str, mut response: Response) -> Answer {
    let Some(path) = request.query.get(parameter) else { return Ok(response) };
    if !path.starts_with('/') {
        return Err(Error::bad_request("path must begin with a /."));
    }
    *response.status_mut() = StatusCode::FOUND;
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute(path));
    Ok(response)
}
