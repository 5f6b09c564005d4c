# SPDX-License-Identifier: LGPL-2.1-or-later
"""The part of the dashboard's openapi.yaml that describes perfguard's REST API.

    python3 -m qa.lib.openapi            prints the fragment to merge into Ceph's file

It is generated from the table of routes, in the form of Ceph's own file.
"""
import re
import sys
from typing import Any, Dict, List

import yaml

from perfguard.web.routes import ROUTES, Field, Route

API = '/api/perfguard'
MEDIA = 'application/vnd.ceph.api.v1.0+json'
TYPES = {str: 'string', int: 'integer', float: 'number', bool: 'boolean'}
ERRORS = {
    '400': 'Operation exception. Please check the response body for details.',
    '401': 'Unauthenticated access. Please login first.',
    '403': 'Unauthorized access. Please check your permissions.',
    '500': 'Unexpected error. Please check the response body for the stack trace.'}

Json = Dict[str, Any]


def schema(field: Field) -> Json:
    kind = field.kind.documented
    if isinstance(kind, list):
        return {'type': 'array', 'items': {'type': TYPES[kind[0]]}}
    return {'type': TYPES[kind]}


def _parameter(field: Field, where: str) -> Json:
    found: Json = {'in': where, 'name': field.name, 'description': field.about,
                   'schema': schema(field)}
    if where == 'path' or field.required:
        found['required'] = True
    return found


def _body(fields: List[Field]) -> Json:
    properties = {field.name: {**schema(field), 'description': field.about} for field in fields}
    content: Json = {'type': 'object', 'properties': properties}
    required = [field.name for field in fields if field.required]
    if required:
        content['required'] = required
    return {'content': {'application/json': {'schema': content}}}


def operation(route: Route) -> Json:
    in_path = set(re.findall(r'{(\w+)}', route.path))
    others = [field for field in route.fields if field.name not in in_path]
    in_query = route.method in ('GET', 'DELETE')
    found: Json = {
        'summary': route.about, 'tags': ['Perfguard'], 'security': [{'jwt': []}],
        'parameters': [_parameter(field, 'path') for field in route.fields
                       if field.name in in_path]
        + [_parameter(field, 'query') for field in others if in_query],
        'responses': {_success(route): {
            'content': {MEDIA: {'type': 'object'}}, 'description': 'OK'}, **{
            code: {'description': text} for code, text in ERRORS.items()}}}
    if others and not in_query:
        found['requestBody'] = _body(others)
    return found


def _success(route: Route) -> str:
    return {'GET': '200', 'POST': '201', 'DELETE': '204'}[route.method]


def fragment() -> str:
    paths: Dict[str, Json] = {}
    for route in ROUTES:
        paths.setdefault(API + route.path, {})[route.method.lower()] = operation(route)
    return str(yaml.safe_dump({
        'paths': paths,
        'tags': [{'name': 'Perfguard', 'description': 'Campaigns, watch, probes and advice'}]}))


def main() -> int:
    sys.stdout.write(fragment())
    return 0


if __name__ == '__main__':
    sys.exit(main())
