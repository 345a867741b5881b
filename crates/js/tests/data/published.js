//// all documents by id
function(doc) { emit(doc._id, null); }
//// whole documents
function (doc) {
  emit(doc._id, doc);
}
//// count of everything
function(doc) { emit(null, 1) }
//// by type
function(doc) {
  if (doc.type) {
    emit(doc.type, 1);
  }
}
//// posts by date
function(doc) {
  if (doc.date && doc.title) {
    emit(doc.date, doc.title);
  }
};
//// posts of one type with summary object
function(doc) {
  if (doc.type == "post") {
    emit(new Date(doc.created_at), {
      title: doc.title, summary: doc.summary || doc.body, author: doc.author && doc.author.name
    });
  }
}
//// tags
function(doc) {
  if (doc.tags && doc.tags.length > 0) {
    for (var i in doc.tags) {
      emit(doc.tags[i], 1);
    }
  }
}
//// tags with a counter
function(doc) {
  if (!doc.tags) return;
  for (var idx = 0; idx < doc.tags.length; idx++) {
    emit([doc.tags[idx], doc.created_at], null);
  }
}
//// tags with forEach
function(doc) {
  if (doc.tags && Array.isArray(doc.tags)) {
    doc.tags.forEach(function(tag) {
      emit(tag.toLowerCase(), doc._id);
    });
  }
}
//// pairs of tags
function(doc) {
  if (!isArray(doc.tags)) { return; }
  var tags = doc.tags.slice(0).sort();
  for (var a = 0; a < tags.length; a++) {
    for (var b = a + 1; b < tags.length; b++) {
      emit([tags[a], tags[b]], 1);
    }
  }
}
//// comments beside their posts
function(doc) {
  if (doc.type === 'post') {
    emit([doc._id, 0], doc);
  } else if (doc.type === 'comment') {
    emit([doc.post, 1], doc);
  }
}
//// comments inside a post
function(doc) {
  for (var i in doc.comments) {
    emit(doc.comments[i].author, doc.comments[i].content);
  }
}
//// comments by date below their post
function(doc) {
  if (doc.type == 'comment' && doc.post) {
    emit([doc.post, doc.created_at], {author: doc.author, text: doc.text});
  }
}
//// linked documents
function(doc) {
  if (doc.ancestors) {
    for (var i in doc.ancestors) {
      emit([doc._id, Number(i) + 1], {_id: doc.ancestors[i]});
    }
    emit([doc._id, 0], null);
  }
}
//// year, month, day of an ISO date by parts
function(doc) {
  if (doc.created_at) {
    var parts = doc.created_at.split('T')[0].split('-');
    emit([parseInt(parts[0], 10), parseInt(parts[1], 10), parseInt(parts[2], 10)], 1);
  }
}
//// year and month by substrings
function(doc) {
  if (doc.metadata && doc.metadata.docType === 'score') {
    var d = doc.metadata.createdAt;
    emit([parseInt(d.substr(0, 4)), parseInt(d.substr(5, 2))], doc.score);
  }
}
//// date parts by Date
function(doc) {
  if (doc.created_at) {
    var d = new Date(doc.created_at);
    emit([d.getFullYear(), d.getMonth() + 1, d.getDate(), d.getHours()], doc.total || 0);
  }
}
//// time stamps in seconds
function(doc) {
  if (doc.timestamp) {
    var date = new Date(doc.timestamp * 1000);
    emit([date.getUTCFullYear(), date.getUTCMonth(), date.getUTCDate()], 1);
  }
}
//// age in whole days
function(doc) {
  if (doc.start && doc.end) {
    var from = Date.parse(doc.start), to = Date.parse(doc.end);
    emit(doc._id, Math.floor((to - from) / 86400000));
  }
}
//// calendar week of an event
function(doc) {
  if (doc.type !== 'event') return;
  var day = new Date(doc.start);
  var first = new Date(day.getFullYear(), 0, 1);
  var week = Math.ceil((((day - first) / 86400000) + first.getDay() + 1) / 7);
  emit([day.getFullYear(), week], doc.title);
}
//// words of a text
function(doc) {
  if (doc.body) {
    var words = doc.body.toLowerCase().split(/\W+/);
    for (var i = 0; i < words.length; i++) {
      if (words[i].length > 2) emit(words[i], null);
    }
  }
}
//// words with their numbers
function(doc) {
  if (typeof doc.body !== 'string') return;
  var counts = {};
  doc.body.replace(/[.,!?;:]/g, ' ').split(' ').forEach(function(w) {
    if (!w) return;
    w = w.toLowerCase();
    if (counts[w]) counts[w] += 1; else counts[w] = 1;
  });
  for (var word in counts) { emit(word, counts[word]); }
}
//// words without stop words
function(doc) {
  var stop = {the: true, a: true, and: true, of: true, is: true};
  var fields = ['title', 'body', 'summary'];
  fields.forEach(function(field) {
    var text = doc[field];
    if (typeof text === 'string') {
      var found = text.toLowerCase().match(/[a-z]+/g);
      if (found) {
        found.forEach(function(word) { if (!stop[word]) emit(word, field); });
      }
    }
  });
}
//// suffixes for search in the middle of names
function(doc) {
  if (doc.name) {
    var i;
    for (i = 0; i < doc.name.length; i += 1) {
      emit(doc.name.slice(i), doc.name);
    }
  }
}
//// prefixes for completion
function(doc) {
  if (!doc.name) return;
  var name = doc.name.toLowerCase().trim();
  for (var length = 1; length <= Math.min(5, name.length); length++) {
    emit(name.substring(0, length), doc._id);
  }
}
//// first letters
function(doc) {
  if (doc.name) emit(doc.name.charAt(0).toUpperCase(), doc.name);
}
//// several names of one person
function(doc) {
  if (doc.type === 'person') {
    emit(doc.firstname.toLowerCase(), doc._id);
    emit(doc.lastname.toLowerCase(), doc._id);
    emit((doc.firstname + ' ' + doc.lastname).toLowerCase(), doc._id);
  }
}
//// last name first
(doc) => {
  if (doc.type === 'person') {
    emit([doc.lastname, doc.firstname]);
  }
}
//// arrow with a single expression
doc => emit(doc.type, doc.total)
//// optional chaining
(doc) => {
  const city = doc.address?.city;
  if (city) emit(city.toLowerCase(), doc.address?.zip ?? null);
}
//// mail domains
function(doc) {
  if (doc.email && doc.email.indexOf('@') !== -1) {
    emit(doc.email.split('@')[1].toLowerCase(), 1);
  }
}
//// users with an email
function(doc) {
  if (doc.type == 'user' && doc.email) emit(doc.email, doc.name);
}
//// roles of users
function(doc) {
  if (doc.type === 'user' && doc.roles) {
    doc.roles.forEach(function(role) { emit(role, doc.name); });
  }
}
//// documents in conflict
function(doc) {
  if (doc._conflicts) {
    emit(doc._conflicts, null);
  }
}
//// conflicts by revision
function(doc) {
  if (doc._conflicts) {
    emit(null, [doc._rev].concat(doc._conflicts));
  }
}
//// attachments
function(doc) {
  if (doc._attachments) {
    for (var name in doc._attachments) {
      emit([doc._id, name], doc._attachments[name].length);
    }
  }
}
//// attachments by content type
function(doc) {
  if (!doc._attachments) return;
  Object.keys(doc._attachments).forEach(function(file) {
    var info = doc._attachments[file];
    emit(info.content_type, {file: file, length: info.length});
  });
}
//// invoices with totals
function(doc) {
  if (doc.type === 'invoice') {
    var total = 0;
    for (var i = 0; i < doc.lines.length; i++) {
      total += doc.lines[i].price * doc.lines[i].quantity;
    }
    emit([doc.customer, doc.created_at], total);
  }
}
//// invoices reduced
function(doc) {
  if (doc.type == 'invoice' && doc.lines) {
    var sumOf = doc.lines.reduce(function(total, line) { return total + line.price * line.quantity; }, 0);
    emit(doc.customer, Math.round(sumOf * 100) / 100);
  }
}
//// lines of orders
function(doc) {
  if (doc.lines) {
    doc.lines.forEach(function(line, index) {
      emit([line.product, doc.created_at, index], line.quantity);
    });
  }
}
//// orders not shipped
function(doc) {
  if (doc.type === "order" && !doc.shipped) emit(doc.created_at, {customer: doc.customer, total: doc.total});
}
//// prices as fixed decimals
function(doc) {
  if (typeof doc.price === 'number') emit(doc.price.toFixed(2), doc.name);
}
//// prices in ranges
function(doc) {
  if (doc.price != null) {
    var range = Math.floor(doc.price / 10) * 10;
    emit([range, range + 9], 1);
  }
}
//// price classes
function(doc) {
  var p = parseFloat(doc.price);
  if (isNaN(p)) return;
  var klass;
  if (p < 10) { klass = 'cheap'; }
  else if (p < 100) { klass = 'medium'; }
  else { klass = 'expensive'; }
  emit(klass, p);
}
//// switch by type
function(doc) {
  switch (doc.type) {
    case 'post':
      emit(['content', doc._id], doc.title);
      break;
    case 'comment':
    case 'reply':
      emit(['discussion', doc.post || doc.parent], doc.text);
      break;
    case 'person':
      emit(['people', doc.lastname], 1);
      break;
    default:
      if (doc.type) emit(['other', doc.type], 1);
  }
}
//// names of all members
function(doc) {
  for (var key in doc) {
    if (key.charAt(0) !== '_') emit(key, typeof doc[key]);
  }
}
//// members with hasOwnProperty
function(doc) {
  for (var prop in doc) {
    if (doc.hasOwnProperty(prop) && prop.indexOf('_') !== 0) {
      emit([prop, doc[prop]], 1);
    }
  }
}
//// schema survey
function(doc) {
  function walk(value, path) {
    if (value !== null && typeof value === 'object' && !isArray(value)) {
      for (var name in value) { walk(value[name], path.concat(name)); }
    } else {
      emit(path, isArray(value) ? 'array' : value === null ? 'null' : typeof value);
    }
  }
  walk(doc, []);
}
//// members of the person type with regular expression
function(doc) {
  if (/^person-\d+$/.test(doc._id)) emit(doc._id.replace('person-', ''), null);
}
//// id prefixes
function(doc) {
  var at = doc._id.indexOf(':');
  if (at > 0) { emit(doc._id.substring(0, at), doc._id.substring(at + 1)); }
}
//// design documents aside
function(doc) {
  if (doc._id.substr(0, 8) !== '_design/') emit(doc._id);
}
//// starts with
function(doc) {
  if (doc._id.startsWith('order_')) emit(doc._id.slice(6), doc.total);
}
//// deleted by a flag
function (doc) {
  if (doc.deleted === true || doc.archived) return;
  emit([doc.type || 'none', doc._id], null);
}
//// several conditions
function(doc) {
  if (doc.type === 'person' && doc.age >= 18 && doc.age < 65 && !doc.retired) {
    emit(doc.age, {name: doc.lastname + ", " + doc.firstname});
  }
}
//// decades
function(doc) {
  if (doc.age) emit(Math.floor(doc.age / 10) * 10, 1);
}
//// ternary keys
function(doc) {
  emit(doc.age === undefined ? 'unknown' : doc.age >= 18 ? 'adult' : 'minor', 1);
}
//// places on a grid
function(doc) {
  if (doc.geo && doc.geo.lat !== undefined) {
    emit([Math.round(doc.geo.lat * 10) / 10, Math.round(doc.geo.lon * 10) / 10], doc.name);
  }
}
//// GeoJSON points
function(doc) {
  if (doc.loc && doc.loc.type === 'Point') {
    emit({type: 'Point', coordinates: [doc.loc.coordinates[0], doc.loc.coordinates[1]]}, doc._id);
  }
}
//// geohash like cells
function(doc) {
  if (!doc.geo) return;
  var lat = doc.geo.lat + 90, lon = doc.geo.lon + 180, cell = '';
  for (var bit = 0; bit < 4; bit++) {
    lat *= 2; lon *= 2;
    cell += String((lat / 180 | 0) & 1) + ((lon / 360 | 0) & 1);
  }
  emit(cell, [doc.geo.lat, doc.geo.lon]);
}
//// distance from a point
function(doc) {
  if (doc.geo) {
    var dx = doc.geo.lat - 52.5, dy = doc.geo.lon - 13.4;
    emit(Math.sqrt(dx * dx + dy * dy), doc.name);
  }
}
//// packages by name
function(doc) {
  if (doc['dist-tags'] && doc['dist-tags'].latest) {
    emit(doc.name, doc['dist-tags'].latest);
  }
}
//// dependencies of packages
function(doc) {
  if (!doc.versions || !doc['dist-tags']) return;
  var latest = doc.versions[doc['dist-tags'].latest];
  if (!latest) return;
  var dependencies = latest.dependencies || {};
  for (var name in dependencies) emit([name, doc._id, doc.description], 1);
}
//// keywords of packages
function (doc) {
  if (!doc || !doc.versions || !doc["dist-tags"]) return
  var v = doc.versions[doc["dist-tags"].latest]
  if (!v || !v.keywords || !Array.isArray(v.keywords)) return
  v.keywords.forEach(function (kw) {
    emit([kw.toLowerCase(), doc.name, v.description], 1)
  })
}
//// maintainers
function(doc) {
  var v = doc.versions;
  if (!v) return;
  var seen = {};
  Object.keys(v).forEach(function(number) {
    (v[number].maintainers || []).forEach(function(m) {
      if (!seen[m.name]) { seen[m.name] = true; emit(m.name, doc.name); }
    });
  });
}
//// contacts by parent
function(doc) {
  if (doc.type === 'contact' && doc.parent && doc.parent._id) {
    emit([doc.parent._id, doc.name && doc.name.toLowerCase()]);
  }
}
//// contacts by all their ancestors
function(doc) {
  if (doc.type !== 'contact') return;
  var parent = doc.parent, depth = 0;
  while (parent) {
    if (parent._id) { depth++; emit([parent._id, depth], doc._id); }
    parent = parent.parent;
  }
}
//// reports by form and time
function(doc) {
  if (doc.type === 'data_record' && doc.form) {
    emit([doc.form, doc.reported_date], {from: doc.from, errors: doc.errors ? doc.errors.length : 0});
  }
}
//// search fields of reports
function(doc) {
  var skip = ['_id', '_rev', 'type', 'refid', 'geo'];
  var used = [];
  var emitMaybe = function(value) {
    if (used.indexOf(value) === -1 && value.length > 2) {
      used.push(value);
      emit([value], doc.reported_date);
    }
  };
  var emitField = function(key, value) {
    if (skip.indexOf(key) !== -1 || /_date$/.test(key)) return;
    if (typeof value === 'string') {
      value.toLowerCase().split(/\s+/).forEach(function(word) { emitMaybe(word); });
    }
  };
  if (doc.type === 'data_record') {
    Object.keys(doc).forEach(function(key) { emitField(key, doc[key]); });
  }
}
//// messages by state
function(doc) {
  (doc.tasks || []).concat(doc.scheduled_tasks || []).forEach(function(task) {
    if (task.state === 'pending') {
      task.messages.forEach(function(message) {
        emit([message.to, task.due || doc.reported_date], message.message);
      });
    }
  });
}
//// sensors by time
function(doc) {
  if (doc.sensor && doc.readings) {
    for (var i = 0, length = doc.readings.length; i < length; i++) {
      var r = doc.readings[i];
      emit([doc.sensor, r[0]], r[1]);
    }
  }
}
//// sensors with statistics
function(doc) {
  if (!doc.readings || !doc.readings.length) return;
  var values = doc.readings.map(function(r) { return r[1]; });
  var low = values[0], high = values[0];
  values.forEach(function(v) { if (v < low) low = v; if (v > high) high = v; });
  emit(doc.sensor, {min: low, max: high, mean: sum(values) / values.length, count: values.length});
}
//// sensors sorted
function(doc) {
  if (doc.readings) {
    var values = doc.readings.map(r => r[1]).filter(v => typeof v === 'number').sort((a, b) => a - b);
    if (values.length) emit(doc.sensor, values[Math.floor(values.length / 2)]);
  }
}
//// log lines by level
function(doc) {
  var m = doc.line && doc.line.match(/^\[(\w+)\] (.*)$/);
  if (m) emit([m[1], doc.timestamp], m[2]);
}
//// urls by host
function(doc) {
  if (doc.url) {
    var host = doc.url.replace(/^https?:\/\//, '').split('/')[0];
    emit(host.split('.').reverse(), 1);
  }
}
//// slugs
function(doc) {
  if (doc.title) {
    emit(doc.title.toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, ''), doc._id);
  }
}
//// votes
function(doc) {
  if (doc.type === 'vote') emit(doc.post, doc.up ? 1 : -1);
}
//// hotness
function(doc) {
  if (doc.votes !== undefined && doc.timestamp) {
    var score = Math.max(Math.abs(doc.votes), 1);
    var sign = doc.votes > 0 ? 1 : doc.votes < 0 ? -1 : 0;
    emit(Math.round((sign * score + (doc.timestamp - 1134028003) / 45000) * 1000) / 1000, doc.title);
  }
}
//// friends both ways
function(doc) {
  if (doc.type == 'friendship') {
    emit([doc.from, doc.to], null);
    emit([doc.to, doc.from], null);
  }
}
//// trees by path
function(doc) {
  if (doc.path) {
    for (var i = 0; i < doc.path.length; i++) {
      emit(doc.path.slice(0, i + 1), doc.path.length - i - 1);
    }
  }
}
//// file tree sizes
function(doc) {
  if (doc.filename) {
    var pieces = doc.filename.split('/'), path = [];
    while (pieces.length) {
      path.push(pieces.shift());
      emit(path.slice(), doc.size || 0);
    }
  }
}
//// books by authors and years
function(doc) {
  if (doc.isbn) {
    (isArray(doc.author) ? doc.author : [doc.author]).forEach(function(author) {
      if (author) emit([author, doc.year | 0], doc.title);
    });
  }
}
//// recipes by ingredients
function(doc) {
  if (doc.ingredients) {
    Object.keys(doc.ingredients).sort().forEach(function(name) {
      emit([name, doc.ingredients[name]], {_id: doc._id});
    });
  }
}
//// translations
function(doc) {
  if (doc.i18n) {
    for (var lang in doc.i18n) {
      for (var key in doc.i18n[lang]) {
        emit([lang, key], doc.i18n[lang][key]);
      }
    }
  }
}
//// missing translations
function(doc) {
  if (!doc.i18n || !doc.i18n.en) return;
  ['de', 'fr', 'es'].forEach(function(lang) {
    Object.keys(doc.i18n.en).forEach(function(key) {
      if (!(doc.i18n[lang] && key in doc.i18n[lang])) emit([lang, key], doc.i18n.en[key]);
    });
  });
}
//// todo lists
function(doc) {
  if (doc.type === 'list') emit([doc._id, 0, doc.created_at], doc.title);
  if (doc.type === 'item') emit([doc.list, 1, doc.checked ? 1 : 0, doc.created_at], doc.title);
}
//// open items
function(doc) {
  if (doc.type === 'item' && doc.checked === false) emit(doc.list);
}
//// template keys
(doc) => {
  if (doc.type === 'item') {
    emit(`${doc.list}:${doc.title}`, `${doc.checked ? 'done' : 'open'}`);
  }
}
//// const and for of
(doc) => {
  const tags = doc.tags || [];
  for (const tag of tags) {
    emit([tag, doc.type], 1);
  }
}
//// entries
(doc) => {
  Object.entries(doc.ingredients || {}).forEach(function(pair) {
    emit(pair[0], pair[1]);
  });
}
//// spread
(doc) => {
  if (doc.path) emit([...doc.path, doc._id], null);
}
//// includes and some
(doc) => {
  if ((doc.tags || []).includes('couchdb') || (doc.roles || []).some(r => r === 'admin')) emit(doc._id, 1);
}
//// caught exceptions
function(doc) {
  try {
    if (doc.lines.length > 1) emit(doc.customer, doc.lines.length);
  } catch (e) {
    log('no lines in ' + doc._id);
  }
}
//// exceptions for odd documents
function(doc) {
  emit(doc.author.name, doc.title);
}
//// logging
function(doc) {
  log(doc);
  if (doc.total) { log('total ' + doc.total); emit(doc.total, null); }
}
//// JSON of a part
function(doc) {
  if (doc.geo) emit(JSON.stringify(doc.geo), toJSON(doc.tags));
}
//// pad numbers
function(doc) {
  function pad(n) { return n < 10 ? '0' + n : '' + n; }
  if (doc.timestamp) {
    var d = new Date(doc.timestamp * 1000);
    emit(d.getUTCFullYear() + '-' + pad(d.getUTCMonth() + 1) + '-' + pad(d.getUTCDate()), 1);
  }
}
//// replicated leaderboard
function(doc) {
  if (doc.player && doc.scores) {
    var best = Math.max.apply(null, doc.scores);
    emit([doc.game, -best], doc.player);
  }
}
//// library module
function(doc) {
  var tools = require('views/lib/tools');
  emit(tools.key(doc), 1);
}
//// key with keys of the library and old comments
/* counts by
   first letter */
function count(doc) { // named
  var letter = (doc.name || doc.title || '?').charAt(0);
  emit(letter, 1); /* one each */
};
//// functions before the map function
function norm(s) { return String(s).toLowerCase(); }
function(doc) { if (doc.title) emit(norm(doc.title), null); }
//// destructured
({_id, type, total = 0}) => { if (type) emit([type, _id], total); }
//// replaced by a function
function(doc) {
  if (doc.title) emit(doc.title.replace(/\b\w/g, function(c) { return c.toUpperCase(); }), null);
}
//// members by names in brackets
function(doc) {
  if (doc['couch-type'] == 'Child' || doc['type'] == 'person') { emit(doc['name'], {_id: doc['_id'], _rev: doc['_rev']}); }
}
//// elements by bracketed names and positions
function(doc) {
  if (doc['type'] == 'post') {
    for (var index in doc['comments']) {
      if (doc['comments'][index]['author'] == 'Noah') emit(doc['comments'][index]['author'], index);
    }
  }
}
//// a node and its neighbours for include_docs
function(doc) {
    emit(doc._id, {_id: doc._id});
    for(var n in doc.friends) {
        emit(doc._id, {_id: doc.friends[n]});
    }
}
//// id without its prefix
function (doc) {
  if (doc._id.slice(0, 5) === "post-") {
    emit(doc._id.slice(5), doc._id.slice(5));
    doc.tags.forEach(function (tag) {
      emit(tag, doc._id.slice(5));
    });
  }
}
//// negative scores for a descending order, objects as high keys
function map(doc) {
  if (doc.name && doc.type && doc.score) {
    emit(
      [doc.type, -doc.score, doc.name, doc.timestamp || {}],
      {name: doc.name, score: doc.score, timestamp: doc.timestamp || {}}
    );
  }
}
//// early return for what was thrown away
function(doc) {
  /* not what is in the bin */
  if(doc.trashed && doc.trashed.indexOf("deleted") > -1) return;
  if (doc.created_at) {
    emit(doc.created_at, doc);
  }
};
//// returns at several conditions, default by ternary
function(doc) {

    if (doc.type != "post" && doc.type != "order" && doc.type != "person") {

        return;
    }

    if(doc.archived) {

        return;
    }

    var season = (doc.season) ? doc.season : "ALL";

    emit([doc.type, season, doc.author], 1);
}
//// date and time with leading zeros
function(doc) {
    if (doc.created_at) {
        var a = doc.author || {};
        var d = new Date(doc.created_at);
        var day = d.getUTCDate(), dayOfWeek = d.getUTCDay() + 1;
        var month = d.getUTCMonth() +1;
        var hours = d.getUTCHours();
        var minutes = d.getUTCMinutes();

        if (minutes <10) {
            minutes = "0" + minutes;
        }

        emit(doc.created_at, {
            author: a.name,
            date: d.getUTCFullYear() + "/" + month + "/" + day,
            weekday: dayOfWeek,
            time: hours + ":" + minutes,
        });
    }
};
//// milliseconds of a date
function(doc){
  if (doc.type === 'post'){
    var created = new Date(doc.created_at);
    emit(created.getTime(), null);
  }
}
//// local date and time as texts
function(doc) { if (doc.created_at) { var d = new Date(doc.created_at); emit(d.getFullYear(), d.toDateString()); } }
//// types that contain a word
function(doc) {
  if (doc.type !== undefined && doc.type.indexOf('er') != -1) {
    emit(doc.customer);
  }
}
//// many cases with long keys
function (doc) {
  switch (doc.type) {
  case 'post':
    emit([doc.type, doc.title, doc.author, doc.date, doc.created_at, doc.votes], null);
    break;
  case 'person':
    emit([doc.type, doc.firstname, doc.lastname, doc.address && doc.address.city], null);
    break;
  default:
  }
}
//// cases that fall through
function(doc) {
  switch (doc.type) {
    case "comment":
    case "reply": emit(["talk", doc.author], 1);
    case "post": emit(["text", doc._id], 1); break;
  }
}
//// words between all that is no letter
function(doc){
    var words = doc.text.split(/\W/);
    words.forEach(function(word){
      if (word.length > 0) emit([word,doc.author],1);
    });
}
//// tags from the last to the first
function(doc) {
    var tags = doc.tags;
    if (tags) {
        for (var i = tags.length - 1; i >= 0; i--) {
            if (tags[i])  {      // there is something
               emit(tags[i].toLowerCase(), 1);
            }
        }
    }
}
//// no value and no semicolon
function(doc) { if (doc.type) emit([doc.type, doc.state]) }
//// arrow with a block on one line
(doc) => { if (doc._conflicts) { emit(doc._conflicts, doc._id); } }
//// arrow in brackets
((doc) => emit([doc.type, doc.subtype], 1))
//// all but one design document, chosen members
function(doc) {if (doc._id != "_design/app") {emit(doc._id, {_id: doc._id, name: doc.name, date: doc.date, type: doc.type});}}
//// states in a condition with brackets
function(doc) { if (doc.type == 'order' && (doc.state === 'OPEN' || doc.state === 'PENDING')) emit(null, doc._id) }
//// lower case of a member that must be there
function(doc) { if (doc.type == 'user' && doc.email) emit(doc.email.toLowerCase(), doc._id) }
//// value of something deep
function(doc) {
  if (doc.address && doc.address.city) {
    emit(doc.address.city.toUpperCase().replace(/\s+/g, '_'), 1);
  }
}
//// content for a list, made before
function(doc) {
	var content = {
		createdAt: doc.created_at,
		title: doc.title,
		tags: doc.tags && doc.tags.length
	}
	emit(doc.updated_at, content);
}
