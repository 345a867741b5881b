// The functions `index` of search indexes: `style` is 1 for Nouveau's and 2 for the older one. They check their arguments
// as CouchDB's query server does and emit each field as a row.
(function (emit, style) {
  'use strict';
  var TYPES = {text: ['string'], string: ['string'], double: ['number'], stored: ['string', 'number'], vector: ['array']};
  var hasOwn = Object.prototype.hasOwnProperty;
  var Exception = Error;
  var isArray = Array.isArray;

  function refuse(name, message) {
    var exception = new Exception(message);
    exception.name = name;
    throw exception;
  }

  function expect(what, actual, expected) {
    for (var i = 0; i < expected.length; i++) {
      if (expected[i] === 'array' ? isArray(actual) : typeof actual === expected[i]) {
        return;
      }
    }
    refuse('TypeError', 'type of ' + what + ' must be ' + (expected[0] === 'array' ? 'an ' : 'a ') + expected.join(' or ') +
      ' not ' + typeof actual);
  }

  function checkName(name) {
    if (name.length > 0 && name[0] === '_') {
      refuse('ReservedName', 'name must not start with an underscore');
    }
  }

  function nouveau(type, name, value, options) {
    expect('type', type, ['string']);
    expect('name', name, ['string']);
    checkName(name);
    if (!hasOwn.call(TYPES, type)) {
      refuse('TypeError', type + ' not supported');
    }
    expect('value', value, TYPES[type]);
    emit(options ? [type, name, options] : [type, name], value);
  }

  function clouseau(name, value, options) {
    if (typeof name !== 'string') {
      refuse('TypeError', 'name must be a string not ' + typeof name);
    }
    checkName(name);
    if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') {
      refuse('TypeError', 'value must be a string, a number or boolean not ' + typeof value);
    }
    if (options && typeof options !== 'object') {
      refuse('TypeError', 'options must be an object not ' + typeof options);
    }
    emit(options ? [name, options] : [name], value);
  }

  return style === 1 ? nouveau : clouseau;
})
