// What all functions find in their global environment, besides what is native. `rootText` is the document that `require`
// looks into, or as much of it as is to be seen.
(function (compileModule, nativeSum, rootText) {
  'use strict';
  var parse = JSON.parse;
  var stringify = JSON.stringify;
  var hasOwn = Object.prototype.hasOwnProperty;
  var cache = Object.create(null);
  var root = null;

  function rootModule() {
    if (root === null) {
      root = {current: rootText === undefined ? {views: {lib: {}}} : parse(rootText), parent: null, id: ''};
    }
    return root;
  }

  function refuse(reason) {
    throw ['error', 'invalid_require_path', reason];
  }

  // Walks `names` from `module`, which has the value `current`, its `parent` module and its `id`.
  function resolve(names, module) {
    for (var i = 0; i < names.length; i++) {
      var name = names[i];
      if (name === '..') {
        if (!module.parent) {
          refuse('Object has no parent ' + stringify(module.current));
        }
        module = module.parent;
      } else if (name !== '.') {
        if (module.current === null || typeof module.current !== 'object' || !hasOwn.call(module.current, name)) {
          refuse('Object has no property "' + name + '". ' + stringify(module.current));
        }
        module = {current: module.current[name], parent: module, id: module.id ? module.id + '/' + name : name};
      }
    }
    if (typeof module.current !== 'string') {
      refuse('Must require a JavaScript string, not: ' + typeof module.current);
    }
    return module;
  }

  function requireFrom(name, base) {
    var names = String(name).split('/');
    var relative = names[0] === '.' || names[0] === '..';
    if (relative && !base) {
      refuse('Object has no parent ' + stringify(rootModule().current));
    }
    var found = resolve(names, relative ? base.parent : rootModule());
    if (!(found.id in cache)) {
      // Empty exports before the module runs, so that modules may require each other in a circle.
      var module = {id: found.id, current: found.current, parent: found.parent, exports: {}};
      cache[found.id] = module;
      try {
        compileModule(found.current, found.id).call(undefined, module, module.exports, function (inner) {
          return requireFrom(inner, found);
        });
      } catch (error) {
        delete cache[found.id];
        throw ['error', 'compilation_error', "Module require('" + name + "') raised error " + String(error)];
      }
    }
    return cache[found.id].exports;
  }

  return {
    root: function () {
      return rootModule().current;
    },
    require: function (name) {
      return requireFrom(name, null);
    },
    sum: function (values) {
      var total = nativeSum(values);
      if (total === undefined) {
        total = 0;
        for (var index in values) {
          total += values[index];
        }
      }
      return total;
    },
    isArray: Array.isArray,
    toJSON: stringify
  };
})
