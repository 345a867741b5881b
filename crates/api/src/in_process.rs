//! [`InProcess`]: requests from within this process to its own databases, through the router.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Weak};

use http_body_util::BodyExt;
use hyper::{HeaderMap, Method};
use settee_auth::UserContext;
use settee_edge::budget::{Account, Share};
use settee_edge::origin::Scheme;
use settee_edge::respond::Aborted;
use settee_replication::{Body, BoxFuture, Roles, Transport, TransportError, User};

use crate::Error;
use crate::authentication::Caller;
use crate::forwarding::{self, Payload, Sent, USER};
use crate::head::RequestHead;
use crate::node::Node;
use crate::request::RequestBody;
use crate::respond::Response;
use crate::router::{Effect, Resolved, Router};

pub(crate) struct InProcess {
    node: Weak<Node>,
    router: Arc<Router>,
    user: User,
}

impl InProcess {
    pub(crate) fn new(node: Weak<Node>, router: Arc<Router>, user: User) -> Self {
        Self { node, router, user }
    }

    async fn handle(&self, request: http::Request<Body>) -> Result<http::Response<Body>, TransportError> {
        let gone = || TransportError::Refused("the server has ended".to_owned());
        let node = self.node.upgrade().ok_or_else(gone)?;
        let (parts, body) = request.into_parts();
        let is_head = parts.method == Method::HEAD;
        let method = if is_head { Method::GET } else { parts.method };
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let scheme = Scheme::Http;
        let account = Account::new(&node.budget, None, Share::Anonymous);
        let work = account.cancellation().on_drop();
        let head = RequestHead {
            method,
            uri: parts.uri,
            peer,
            scheme,
            handler: None,
            requested: None,
            rewrites: 0,
            seen: Arc::default(),
            account,
        };
        let mut body = Payload::Streamed(body);
        let mut write_guard = None;
        let resolved = self.router.resolve(head.uri.path(), node.policy().plus);
        let effect = forwarding::effect(&node, &resolved, &head.method);
        if let Effect::Database(_, database) | Effect::Rewrite(_, database) | Effect::Read(_, database) = &effect {
            match self.send(&node, database, (&head, &parts.headers), body).await? {
                Sent::Answered(response) => return Ok(response),
                Sent::Here(here, started) => (body, write_guard) = (here, effect.guard(started)),
            }
        }
        let body = body.into_body();
        let answer = handle(&node, &self.router, &self.user, resolved, (head, parts.headers), body).await;
        drop(write_guard);
        let (parts, body) = answer.into_parts();
        let body = match is_head {
            true => settee_replication::empty_body(),
            false => {
                let broken = move |aborted: Aborted| {
                    let _work = &work;
                    TransportError::Broken(aborted.to_string())
                };
                body.map_err(broken).boxed_unsync()
            }
        };
        Ok(http::Response::from_parts(parts, body))
    }

    async fn send(
        &self,
        node: &Arc<Node>,
        database: &str,
        (head, headers): (&RequestHead, &HeaderMap),
        body: Payload,
    ) -> Result<Sent, TransportError> {
        let mut headers = headers.clone();
        let user = forwarding::user_header(&self.user);
        headers.insert(USER, user.ok_or_else(|| TransportError::Unusable("the user has no name".to_owned()))?);
        let sent = forwarding::send(node, database, (&head.method, &head.uri), &headers, body).await;
        sent.map_err(|error| TransportError::Broken(error.reason.to_string()))
    }
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    router: &Arc<Router>,
    user: &User,
    resolved: Resolved<'_>,
    (head, headers): (RequestHead, HeaderMap),
    body: RequestBody,
) -> Response {
    let answer = async {
        node.catch_up.wait().await?;
        let user = context(node, user).await?;
        router.handle(node, resolved, (head, headers), user, Some(body)).await
    };
    answer.await.unwrap_or_else(|error| node.refuse(&Caller::default(), &error))
}

impl Transport for InProcess {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(self.handle(request))
    }
}

/// Returns the current rights of a user. Given roles are those of an earlier authorized request or of `user_ctx`; a
/// current server administrator keeps those rights. Without given roles the job has the current roles of its owner's
/// account, as if the owner had sent the request. The account may not exist if names come from tokens or proxies.
async fn context(node: &Arc<Node>, user: &User) -> Result<UserContext, Error> {
    let now = match (&user.name, &user.roles) {
        (None, _) => node.authenticator.without_credentials(),
        (Some(name), Roles::OfAccount) => {
            let account = node.users.account(name).await?;
            account.map_or_else(UserContext::anonymous, |account| account.context())
        }
        (Some(name), Roles::Given(_)) if node.authenticator.is_admin(name) => UserContext::admin(name),
        (Some(_), Roles::Given(_)) => UserContext::anonymous(),
    };
    let mut roles = user.roles.given().to_vec();
    for role in now.roles {
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(UserContext { name: user.name.clone(), roles })
}
