//! The OpenAPI 3.1 description of all calls.

use utoipa::openapi::RefOr;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn, PathItem};
use utoipa::openapi::schema::{AnyOf, Schema};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{IntoResponses, Modify, OpenApi};

use super::problem::ProblemBody;
use super::{
    answers, areas, backups, devices, entities, events, export, fences, fleets, geojson, ingest,
    status, stream, webhook,
};
use crate::model::name::BYTES_MAX;

/// Errors that each call may have.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) enum Errors {
    /// A parameter is wrong; the detail names it.
    #[response(status = 400, content_type = "application/problem+json")]
    Parameter(#[to_schema] ProblemBody),
    /// A valid token is missing, where tokens are asked for.
    #[response(status = 401, content_type = "application/problem+json")]
    Unauthorized(#[to_schema] ProblemBody),
    /// The token lacks the scope, or is not for the fleet.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(#[to_schema] ProblemBody),
    /// There is no such fleet, entity or path; the type says which.
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(#[to_schema] ProblemBody),
    /// The path has no such method.
    #[response(status = 405, content_type = "application/problem+json")]
    Method(#[to_schema] ProblemBody),
    /// The store or the server failed.
    #[response(status = 500, content_type = "application/problem+json")]
    Failed(#[to_schema] ProblemBody),
    /// The server is busy or stops, its disk is full, or the query took too long; the type says which. `Retry-After`
    /// says when to come again.
    #[response(status = 503, content_type = "application/problem+json")]
    Unavailable(#[to_schema] ProblemBody),
}

/// Errors that calls with a body may have, too.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it is a description")]
pub(crate) enum BodyErrors {
    /// The body came too slowly.
    #[response(status = 408, content_type = "application/problem+json")]
    Slow(#[to_schema] ProblemBody),
    /// The body, or a line of it, is too large; the member `limit` has the limit in bytes.
    #[response(status = 413, content_type = "application/problem+json")]
    Large(#[to_schema] ProblemBody),
    /// The body has another form or coding than those that are taken.
    #[response(status = 415, content_type = "application/problem+json")]
    Media(#[to_schema] ProblemBody),
    /// The token's rate is exceeded; `Retry-After` says when to come again.
    #[response(status = 429, content_type = "application/problem+json")]
    Rate(#[to_schema] ProblemBody),
}

/// An empty result matches both forms, so that `oneOf` would reject it.
struct AnyWithin;

impl Modify for AnyWithin {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let components = api.components.get_or_insert_default();
        let within = components.schemas.get_mut("Within");
        if let Some(RefOr::T(schema)) = within
            && let Schema::OneOf(one) = schema
        {
            let mut any = AnyOf::new();
            any.items = std::mem::take(&mut one.items);
            any.description = one.description.take();
            *schema = Schema::AnyOf(any);
        }
    }
}

/// Adds constraints to the schemas of names in paths.
struct Names;

impl Modify for Names {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let of_item = |item: &mut PathItem| {
            let PathItem {
                get,
                put,
                post,
                delete,
                ..
            } = item;
            [get, put, post, delete]
                .into_iter()
                .filter_map(Option::as_mut)
                .for_each(of_operation);
        };
        api.paths.paths.values_mut().for_each(of_item);
    }
}

fn of_operation(operation: &mut Operation) {
    let all = operation.parameters.iter_mut().flatten();
    let names = all.filter(|p| p.parameter_in == ParameterIn::Path && p.name != "receipt");
    names.for_each(of_name);
}

fn of_name(parameter: &mut Parameter) {
    if let Some(RefOr::T(Schema::Object(schema))) = &mut parameter.schema {
        (schema.min_length, schema.max_length) = (Some(1), Some(BYTES_MAX));
        schema.pattern = Some(r"^[^\x00-\x1f\x7f-\x9f]+$".to_owned());
    }
}

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, api: &mut utoipa::openapi::OpenApi) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("Asked for where the server has a file of tokens"))
            .build();
        let components = api.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
        let basic = HttpBuilder::new()
            .scheme(HttpAuthScheme::Basic)
            .description(Some("Of phones and trackers: the password is the token"))
            .build();
        components.add_security_scheme("basic", SecurityScheme::Http(basic));
        let of = ApiKeyValue::with_description(
            "token",
            "Of phones and trackers that can say it in no other way",
        );
        components.add_security_scheme("parameter", SecurityScheme::ApiKey(ApiKey::Query(of)));
    }
}

/// The description of all calls.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Ironstone tracks",
        description = "Where everything is, and was: objects report positions; who is in an area, who is nearest, \
            where one has been.",
    ),
    paths(
        ingest::reports, ingest::durable,
        devices::owntracks, devices::osmand, devices::osmand_post,
        fleets::list, fleets::settings, fleets::change,
        entities::latest, entities::erase, entities::track, entities::summary,
        areas::within, areas::within_polygon, areas::nearby, areas::density,
        export::points, backups::list, backups::make,
        fences::list, fences::show, fences::put, fences::delete, events::list, stream::stream,
        webhook::list, webhook::show, webhook::put, webhook::delete,
        status::health, status::ready, status::metrics, status::openapi,
    ),
    components(schemas(answers::ReportBody, answers::Moment, ProblemBody, geojson::PolygonBody,
        stream::PositionMessage, stream::PlaceMessage, stream::GoneMessage)),
    modifiers(&Bearer, &AnyWithin, &Names),
    security((), ("token" = [])),
    tags(
        (name = "reports", description = "Sending reports"),
        (name = "devices", description = "What phones and trackers send in protocols of their own"),
        (name = "entities", description = "One entity: where it is, and was"),
        (name = "areas", description = "Many entities: who is where"),
        (name = "fleets", description = "Fleets and their settings"),
        (name = "fences", description = "Fences, and what happens at them"),
        (name = "webhooks", description = "Events that are sent to others"),
        (name = "server", description = "The server itself"),
    ),
)]
pub(crate) struct Api;
