// What the functions of a design document find in their global environment, besides the prelude, and how they are called.
// The forms of results and errors are those of CouchDB's query server.
(function (native, document, log) {
  'use strict';
  var hasOwn = Object.prototype.hasOwnProperty;
  var compiled = Object.create(null);
  var chunks, response, responseIsNew, gotRow, lastRow, emitted;
  // What waits for the next row, and whether it may go out before.
  var waiting, streams;
  var WAITING_MAX = 256 << 10;
  var typesByName = Object.create(null);
  var namesByType = Object.create(null);
  var offers, offered, responseType;

  function fail(name, reason) {
    throw ['error', name, reason];
  }

  // The function at `path`, compiled once.
  function find(path) {
    var id = path.join('\u0000');
    if (!(id in compiled)) {
      var value = document;
      for (var i = 0; i < path.length; i++) {
        if (value === null || typeof value !== 'object' || !hasOwn.call(value, path[i]) || !value[path[i]]) {
          fail('not_found', 'missing ' + path[0] + ' function ' + path[path.length - 1] + ' on design doc ' +
            document._id);
        }
        value = value[path[i]];
      }
      if (typeof value !== 'string') {
        fail('compilation_error', 'Expression does not eval to a function. (' + toJSON(value) + ')');
      }
      compiled[id] = native.compileFunction(value);
    }
    return compiled[id];
  }

  function registerType(name) {
    var types = Array.prototype.slice.call(arguments, 1);
    typesByName[name] = types;
    types.forEach(function (type) { namesByType[type] = name; });
  }

  registerType('all', '*/*');
  registerType('text', 'text/plain; charset=utf-8', 'txt');
  registerType('html', 'text/html; charset=utf-8');
  registerType('xhtml', 'application/xhtml+xml', 'xhtml');
  registerType('xml', 'application/xml', 'text/xml', 'application/x-xml');
  registerType('js', 'text/javascript', 'application/javascript', 'application/x-javascript');
  registerType('css', 'text/css');
  registerType('ics', 'text/calendar');
  registerType('csv', 'text/csv');
  registerType('rss', 'application/rss+xml');
  registerType('atom', 'application/atom+xml');
  registerType('yaml', 'application/x-yaml', 'text/yaml');
  registerType('multipart_form', 'multipart/form-data');
  registerType('url_encoded_form', 'application/x-www-form-urlencoded');
  registerType('json', 'application/json', 'text/x-json');

  function provides(name, make) {
    offered = true;
    offers.push({name: name, make: make});
  }

  // A media range or type as {type, subtype, parameters, quality}.
  function parseRange(text) {
    var parts = text.split(';').map(function (part) { return part.trim(); });
    var names = (parts[0] === '*' ? '*/*' : parts[0]).split('/');
    var parameters = Object.create(null);
    parts.slice(1).forEach(function (part) {
      var pair = part.split('=');
      if (pair.length === 2) {
        parameters[pair[0].trim()] = pair[1].trim();
      }
    });
    var quality = parseFloat(parameters.q);
    return {
      type: names[0], subtype: names[1], parameters: parameters,
      quality: quality >= 0 && quality <= 1 ? quality : 1
    };
  }

  function matches(one, other) {
    return one === other || one === '*' || other === '*';
  }

  // How well a type fits the ranges of an Accept header: the most specific range decides about the quality.
  function rate(type, ranges) {
    var wanted = parseRange(type), best = {fitness: -1, quality: 0};
    ranges.forEach(function (range) {
      if (!matches(range.type, wanted.type) || !matches(range.subtype, wanted.subtype)) {
        return;
      }
      var fitness = (range.type === wanted.type ? 100 : 0) + (range.subtype === wanted.subtype ? 10 : 0);
      for (var name in wanted.parameters) {
        if (name !== 'q' && wanted.parameters[name] === range.parameters[name]) {
          fitness++;
        }
      }
      if (fitness > best.fitness) {
        best = {fitness: fitness, quality: range.quality};
      }
    });
    return best;
  }

  function bestType(types, accept) {
    var ranges = accept.split(',').map(parseRange);
    var best = null;
    types.forEach(function (type) {
      var rated = rate(type, ranges);
      var order = best === null ? 1 : rated.fitness - best.rated.fitness || rated.quality - best.rated.quality;
      if (order >= 0) {
        best = {rated: rated, type: type};
      }
    });
    return best !== null && best.rated.quality > 0 ? best.type : '';
  }

  // Calls the function that `provides` was given for what the client wants.
  function runProvided(request) {
    var accept = request.headers && request.headers.Accept, name;
    if (request.query && request.query.format) {
      name = request.query.format;
      responseType = (typesByName[name] || [null])[0];
    } else if (accept) {
      var types = [];
      // What was provided first wins among equals.
      offers.reverse().forEach(function (offer) { types = types.concat(typesByName[offer.name] || []); });
      responseType = bestType(types, accept);
      name = namesByType[responseType];
    } else {
      name = offers[0].name;
      responseType = (typesByName[name] || [null])[0];
    }
    for (var i = 0; name && i < offers.length; i++) {
      if (offers[i].name === name) {
        return offers[i].make.call(document);
      }
    }
    var supported = offers.map(function (offer) { return (typesByName[offer.name] || [offer.name]).join(', '); });
    fail('not_acceptable', 'Content-Type ' + (accept || name) + ' not supported, try one of: ' + supported.join(', '));
  }

  function withType(object) {
    object.headers = object.headers || {};
    if (responseType) {
      object.headers['Content-Type'] = object.headers['Content-Type'] || responseType;
    }
    return object;
  }

  function start(object) {
    response = object || {};
    responseIsNew = true;
  }

  function send(chunk) {
    chunk = String(chunk);
    chunks.push(chunk);
    // The place in the list counts as well.
    waiting += chunk.length + 16;
    if (streams && waiting >= WAITING_MAX) {
      responseIsNew = responseIsNew || !gotRow;
      flush();
    }
  }

  function flush() {
    waiting = 0;
    if (responseIsNew) {
      native.respond(withType(response));
      responseIsNew = false;
    }
    if (chunks.length > 0) {
      native.send(chunks.join(''));
      chunks = [];
    }
  }

  function getRow() {
    if (lastRow) {
      return null;
    }
    if (!gotRow) {
      gotRow = responseIsNew = true;
    }
    flush();
    var row = native.nextRow();
    if (row === undefined) {
      lastRow = true;
      return null;
    }
    return row;
  }

  function reset() {
    chunks = [];
    response = {};
    responseIsNew = gotRow = lastRow = offered = streams = false;
    waiting = 0;
    offers = [];
    responseType = null;
  }

  function wrap(object) {
    return typeof object === 'string' ? {body: object} : object;
  }

  function isResponse(object) {
    return typeof object === 'object' && object !== null && !Array.isArray(object);
  }

  // What functions that render throw: errors in CouchDB's own form stay, others become texts.
  function renderFailure(error) {
    if (error && (error.error && error.reason || error[0] === 'error' || error[0] === 'fatal')) {
      return error;
    }
    var message = 'function raised error: ' + (isError(error) || typeof error !== 'object' ? String(error) :
      toJSON(error)) + ' \nstacktrace: ' + (error ? error.stack : undefined);
    log(message);
    return ['error', 'render_error', message];
  }

  function isError(error) {
    return typeof error === 'object' && error !== null && Boolean(error.name && error.stack);
  }

  // In show functions CouchDB takes the object that starts a response for its headers.
  function bareHeaders(object) {
    var headers = {};
    Object.keys(object).forEach(function (name) {
      if (name !== 'code' && name !== 'headers') {
        headers[name] = String(object[name]);
      }
    });
    return headers;
  }

  function show(make, args) {
    try {
      var result = wrap(make.apply(document, args) || {});
      if (chunks.length > 0) {
        result.code = result.code || response.code;
        result.headers = Object.assign({}, response.headers, result.headers, bareHeaders(response));
        result.body = chunks.join('') + (result.body || '');
        chunks = [];
      }
      if (offered) {
        var provided = wrap(runProvided(args[1]) || {});
        result.body = (result.body || '') + chunks.join('') + (provided.body || '');
        result = withType(result);
      }
    } catch (error) {
      // A path that names a document that is not there is to blame, rather than the function.
      if (args[0] === null && args[1].path && args[1].path.length > 5) {
        fail('not_found', 'document not found');
      }
      throw renderFailure(error);
    }
    if (!isResponse(result)) {
      fail('render_error', 'undefined response from show function');
    }
    return ['resp', result];
  }

  function update(make, args) {
    if (args[1].method === 'GET') {
      fail('method_not_allowed', 'Update functions do not allow GET');
    }
    try {
      var result = make.apply(document, args);
      var made = result[0], answer = wrap(result[1]);
    } catch (error) {
      throw renderFailure(error);
    }
    if (!isResponse(answer)) {
      fail('render_error', 'undefined response from update function');
    }
    return ['up', made === undefined ? null : made, answer];
  }

  // What a function threw on purpose, to be handed over as it is.
  function Refusal(thrown) {
    this.thrown = thrown;
  }

  function validate(check, args) {
    try {
      check.apply(document, args);
    } catch (error) {
      throw isError(error) ? error : new Refusal(error);
    }
    return 1;
  }

  function rewrite(make, args) {
    try {
      var result = make.apply(document, args);
    } catch (error) {
      throw error && (error.forbidden || error.unauthorized) ? new Refusal(error) : renderFailure(error);
    }
    if (!result) {
      return ['no_dispatch_rule'];
    }
    return ['ok', typeof result === 'string' ? {path: result, method: args[0].method} : result];
  }

  var callers = {
    shows: show, updates: update, validate_doc_update: validate, rewrites: rewrite
  };

  return {
    globals: {
      provides: provides, registerType: registerType, start: start, send: send, getRow: getRow,
      emit: function () { emitted = true; }
    },

    call: function (path) {
      var caller = hasOwn.call(callers, path[0]) ? callers[path[0]] :
        fail('unknown_command', "unknown ddoc command '" + path[0] + "'");
      var called = find(path);
      reset();
      return caller(called, Array.prototype.slice.call(arguments, 1));
    },

    // Prepares the filter at `path`.
    filter: function (path) {
      var pass = find(path);
      reset();
      return path[0] === 'views' ? function (doc) {
        emitted = false;
        pass(doc);
        return emitted;
      } : function (doc, request) {
        return Boolean(pass.apply(document, [doc, request]));
      };
    },

    list: function (path, head, request) {
      var make = find(path);
      reset();
      streams = true;
      try {
        var tail = make.call(document, head, request);
        if (offered) {
          tail = runProvided(request);
        }
        if (!gotRow) {
          getRow();
        }
        if (tail !== undefined) {
          send(tail);
        }
        flush();
      } catch (error) {
        throw renderFailure(error);
      }
    },

    // What an exception is to the server.
    explain: function (error) {
      if (typeof error === 'object' && error !== null) {
        if (error instanceof Refusal) {
          return error.thrown;
        }
        if (error[0] === 'error' || error[0] === 'fatal') {
          return ['error', error[1], error[2]];
        }
        if (error.error && error.reason) {
          return ['error', error.error, error.reason];
        }
        if (error.name) {
          return ['error', String(error.name), String(error)];
        }
      }
      return ['error', 'unnamed_error', typeof error === 'string' ? error : toJSON(error) || String(error)];
    }
  };

  function toJSON(value) {
    return JSON.stringify(value);
  }
})
