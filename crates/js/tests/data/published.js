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
//// time of the current release (after npm/npm-registry-couchapp)
function (doc) {
  var now = doc["dist-tags"].latest
    , when = doc.released && doc.released[now]
  if (when) emit(when, now)
}
//// members of the current release, those of two also with dots (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc["dist-tags"] || !doc.versions) return
  var release = doc.versions[doc["dist-tags"].latest]
  if (!release) return
  //emit(doc._id, release)
  var flat = {}
  for (var name in release) {
    flat[name] = release[name] // as it is
    if (typeof release[name] === "object" && release[name] &&
        (name === "dependencies" || name === "commands")) {
      for (var inner in release[name]) flat[name + "." + inner] = release[name][inner]
    }
  }
  flat.owners = doc.owners
  emit(doc.name, flat)
}
//// what must be built at once (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc.versions || !doc["dist-tags"]) return
  var number = doc["dist-tags"].latest
  //Object.keys(doc.versions).forEach(function (number) {
    var release = doc.versions[number]
    if (!release) return
    if (!release.commands) return
    var first =  release.commands.build
              || release.commands.prebuild
              || release.commands.postbuild
    if (!first) return
    emit(doc._id + "@" + number, release.tools || {})
  //})
}
//// commands that call a tool of old (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc.versions || !doc["dist-tags"]) return
  var number = doc["dist-tags"].latest
  if (!doc.versions[number]) return
  if (!doc.versions[number].commands) return
  for (var step in doc.versions[number].commands) {
    if (doc.versions[number].commands[step].indexOf("gulp") !== -1 ||
        doc.versions[number].commands[step].indexOf("scons") !== -1) {
      emit(doc._id, [step, doc.versions[number].commands[step]])
      return
    }
  }
}
//// tools that are neither one nor none (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc["dist-tags"] || !doc.versions) return
  var release = doc["dist-tags"].latest
  if (!doc.versions[release]) return
  release = doc.versions[release]
  var named = release.tools
    , folder = release.folders && release.folders.tools
  if (!named && !folder) return
  if (named && (Object.keys(named).length === 1 || typeof named === "string")) {
    // nothing to see
    return
  }
  emit(doc._id, {named:named, folder:folder})
}
//// archives of releases that are gone (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc._attachments || !doc.versions) return
  var lost = []
    , bytes = 0
  for (var file in doc._attachments) {
    var number = file.substr(doc.name.length + 1).replace(/\.tar\.gz$/, "")
                     .replace(/^r/, "")
    if (!doc.versions[number] && file.match(/\.tar\.gz$/)) {
      lost.push(file)
      bytes += doc._attachments[file].length
    }
  }
  if (lost.length) emit(doc._id, {lost:lost, bytes:bytes})
}
//// what somebody has marked (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc.marked_by) return
  Object.keys(doc.marked_by).forEach(function (who) {
    if (!doc.marked_by[who]) return
    emit([who, doc.name], doc._id)
  })
}
//// days of first, later and last releases (after npm/npm-registry-couchapp)
function (doc) {
  if (!doc || !doc.released) return
  for (var what in doc.released) {
    var at = new Date(doc.released[what])
    if (!at.getTime()) return
    var kind = what === 'first' ? 'new'
             : what === 'last' ? 'newest'
             : 'other'
    emit([ at.getUTCFullYear(),
           at.getUTCMonth() + 1,
           at.getUTCDate(),
           kind,
           doc.name ], 1)
  }
}
//// mean size of attachments (after npm/npm-registry-couchapp)
function (doc) {
  var bytes = 0
    , files = 0
  if (!doc) return
  for (var n in doc._attachments) {
    files ++
    bytes += doc._attachments[n].length
  }
  if (bytes === 0) return
  emit(doc._id, {_id: doc._id, files: files, bytes: bytes, mean: bytes/files})
}
//// who may see what (after medic/cht-core)
function (doc) {
  if (doc.type === 'grave' && doc.remains) {
    doc = doc.remains;
  }

  if (doc._id === 'options' ||
      doc._id === 'logos' ||
      doc._id === 'sponsors' ||
      doc._id === 'growth-tables' ||
      doc.type === 'translation' ||
      doc.type === 'questionnaire') {
    return emit('*', {});
  }

  var whom = function() {
    if (doc.form) {
      // a visit
      if (doc.sender && doc.faults && doc.faults.length) {
        for (var n = 0; n < doc.faults.length; n++) {
          // somebody that nobody knows
          if (doc.faults[n].name === 'unknown_person' ||
              doc.faults[n].name === 'bad_number') {
            return doc.sender._id;
          }
        }
      }
      return (doc.person_id || (doc.answers && doc.answers.person_id)) ||
             (doc.house_id || (doc.answers && doc.answers.house_id)) ||
             (doc.sender && doc.sender._id);
    }
    if (doc.text_message) {
      return doc.sender && doc.sender._id;
    }
    if (doc.outgoing) {
      return doc.tasks &&
             doc.tasks[0] &&
             doc.tasks[0].messages &&
             doc.tasks[0].messages[0] &&
             doc.tasks[0].messages[0].receiver &&
             doc.tasks[0].messages[0].receiver._id;
    }
  };
  var about = { kind: doc.type };
  switch (doc.type) {
    case 'visit':
      var person = whom() || '?';
      if (doc.form && doc.sender) {
        about.sender = doc.sender._id;
      }
      if (doc.answers && doc.answers.secret) {
        about.secret = true;
      }
      emit(person, about);
      if (doc.answers &&
          doc.answers.to_be_signed &&
          doc.sender
      ) {
        var above = doc.sender;
        while (above) {
          if (above._id && above._id !== person) {
            emit(above._id, about);
          }
          above = above.parent;
        }
      }
      return;
    case 'duty':
      return emit(doc.worker, about);
    case 'goal':
      return emit(doc.holder, about);
    case 'house':
    case 'village':
    case 'contact':
      return emit(doc._id, about);
  }
}
//// summaries with ancestors and reasons (after medic/cht-core)
// Must stay like the list of the application.

function(doc) {
  var ancestors = function(place) {
    var ids = [];
    while (place) {
      if (place._id) {
        ids.push(place._id);
      }
      place = place.parent;
    }
    return ids;
  };

  var concernsPerson = function(fault) {
    if (fault.name !== 'form.empty_answers' || !fault.answers) {
      return false;
    }

    if (fault.answers.indexOf('person_id') !== -1 ||
      fault.answers.indexOf('house_id') !== -1) {
      return true;
    }

    return false;
  };

  var about = function(visit) {
    var found = {};
    var number = visit.person_id ||
                 (visit.answers && visit.answers.person_id) ||
                 visit.house_id;
    var called = visit.answers && visit.answers.person_name;
    if (called) {
      found.called = called;
    }

    if (number) {
      found.is = number;
      found.by = 'number';
    } else if (called) {
      found.is = called;
      found.by = 'name';
    } else if (visit.faults) {
      visit.faults.forEach(function(fault) {
        if (concernsPerson(fault)) {
          found.by = 'nothing';
        }
      });
    }

    return found;
  };

  if (doc.type === 'visit' && doc.form) { // of somebody
    emit(doc._id, {
      _rev: doc._rev,
      number: doc.sender && doc.sender.number,
      form: doc.form,
      good: !doc.faults || !doc.faults.length,
      checked: doc.checked,
      above: ancestors(doc.sender && doc.sender.parent),
      about: about(doc)
    });
  } else if (doc.type === 'house' ||
      doc.type === 'village' ||
      doc.type === 'contact') { // somewhere
    emit(doc._id, {
      _rev: doc._rev,
      name: doc.name || doc.number,
      type: doc.type,
      above: ancestors(doc.parent),
      silent: doc.silent
    });
  }
}
//// visits of villages (after medic/cht-core)
function(doc) {
  if (doc.type === 'visit' &&
      doc.form === 'B' &&
      doc.answers &&
      !(doc.faults && doc.faults.length)) {

    var villageOf = function(place) {
      while (place && place.type !== 'village') {
        place = place.parent;
      }
      return place && place._id;
    };

    var village = villageOf(doc.sender);
    emit([village, doc.answers.person_id]);
    emit(['(all)', doc.answers.person_id]);
  }
}
//// visits by month and place (after medic/cht-core)
function (doc) {
  if (doc.sender &&
      doc.sender.parent &&
      doc.answers &&
      (doc.answers.month || doc.answers.month_no) &&
      doc.answers.year &&
      doc.type === 'visit' &&
      doc.form &&
      doc.visited_at) {
    emit([
      doc.answers.year,
      doc.answers.month || doc.answers.month_no,
      doc.form,
      doc.sender.parent._id,
      doc.visited_at
    ]);
  }
}
//// latest records of a place first (after medic/cht-core)
function(doc) {
    if (doc.type.match(/record$/)) {
        var since = parseInt(doc.reported_date, 10) * -1;
        var sent_by = doc.from;
        emit([sent_by, since, doc._id], doc.form);
    }
}
//// what an extension can do (after 2600hz/kazoo)
function(doc) { if (doc.kind != 'extension' || doc.gone) return; var abilities = []; if(doc.rooms) { if(doc.rooms.meeting && doc.rooms.meeting.on) { abilities.push('meeting'); } if(doc.rooms.waiting && doc.rooms.waiting.on) { abilities.push('waiting'); }} if(doc.desk && doc.desk.on) {abilities.push('desk'); } if(doc.number_shown && doc.number_shown.outside && doc.number_shown.outside.number) { abilities.push('number_shown'); } if(doc.mail_on) { abilities.push('mail'); } emit(doc._id, {'id': doc._id, 'can': abilities, 'login': doc.login ,'given_name': doc.given_name, 'level': doc.level}); }
//// telephones of all who share them (after 2600hz/kazoo)
function(doc) {if (doc.kind != 'telephone' || doc.gone) return; var people = {}; if(doc.holder) people[doc.holder] = true; if(typeof doc.shared == 'object' && typeof doc.shared.people == 'object') {Object.keys(doc.shared.people).forEach(function(p) { people[p] = true; }); } Object.keys(people).forEach(function(p) { emit(p, {'id': doc._id, 'label': doc.label, 'address': doc.address || '', 'model': doc.model || 'desk_phone', 'guest':p !== doc.holder}); });}
//// logins of telephones and exchanges (after 2600hz/kazoo)
function (doc) {if (typeof doc.login_data !== 'undefined' && !doc.gone) {var copy = JSON.parse(JSON.stringify(doc.login_data)); copy.of_id = doc._id; copy.of_kind = doc.kind; emit(copy.user.toLowerCase(), copy);} else if (doc.kind === 'exchange' && !doc.gone) {for (n in doc.nodes) {if (!doc.nodes[n].login || !doc.nodes[n].login.way || doc.nodes[n].login.way.toLowerCase() != "secret") continue; var login = doc.nodes[n].login; var copy = {'secret': login.secret, 'user': login.user, 'way': login.way || 'secret', 'format': doc.nodes[n].settings.format || 'plain'}; copy.of_id = doc._id; copy.of_kind = doc.kind; emit(copy.user.toLowerCase(), copy);}}}
//// names or ids in a block of its own (after 2600hz/kazoo)
function(doc) { if (doc.gone) return; { emit([doc.kind, doc.label ? doc.label : doc._id], {'id': doc._id, 'label': doc.label ? doc.label : doc._id, 'below': doc.below_count}); } }
//// sums that are not explained (after 2600hz/kazoo)
function(doc) { if(!doc.charges || doc.gone) return; for (position in doc.charges) emit( position, doc.charges[position] ); }
//// lamps of telephones (after 2600hz/kazoo)
function(doc) {if (doc.kind != 'telephone' || doc.gone) return;if (doc.buttons && doc.buttons.lamps) {for(var n in doc.buttons.lamps) {var lamp = doc.buttons.lamps[n];if(lamp.for == 'person' || lamp.for == 'parking') {emit(lamp.shows, null);}}}}
//// errors of steps (after dmwm/WMCore)
function(doc) {
  if (doc['kind'] == 'run') {
    if (doc['run'].chain == null) {
      return;
    }

    var request = doc['run'].chain.split('/')[1];

    for (var step in doc['run'].steps) {
      if (doc['run']['steps'][step].faults.length > 0) {
        emit([request, doc['run_no'], doc['attempt']],
             {'run': doc['run_no'],
              'step': step,
              'attempt': doc['attempt'],
              'chain': doc['run']['chain'],
              'faults': doc['run']['steps'][step].faults});
      }
    }
  }
}
//// sections of runs without faults (after dmwm/WMCore)
function(doc) {
  if (doc['kind'] == 'run') {
    if (doc['run'].chain == null) {
      return;
    }

    var request = doc['run'].chain.split('/')[1]

    // All steps must have come to an end
    for (var step in doc['run']['steps']) {
      if (doc['run']['steps'][step].result != 0) {
        return;
      }
    }

    // What was read, several for each source
    for (var step in doc['run']['steps']) {
      var read = doc['run']['steps'][step]['read']
      for (var from in read) {
        for (var at in read[from]) {
          for (var member in read[from][at]) {
            if (member == 'sections') {
              emit(request, {"run" : doc['run_no'], "sections" : read[from][at]['sections'] });
            }
          }
        }
      }
    }
  }
}
//// faults with all that was read (after dmwm/WMCore)
function(doc) {
  if (doc['kind'] == 'run') {
    if (doc['run'].chain == null) {
      return;
    }

    var begin = 9999999999;
    var end = 0;

    for (var step in doc['run'].steps) {
      begin = Math.min(begin, doc['run']['steps'][step].begin)
      end = Math.max(end, doc['run']['steps'][step].end)
      if (doc['run']['steps'][step].faults.length > 0) {
        files = new Array();
        sections = new Object;
	logs  = new Array();

        for (var source in doc['run']['steps'][step]['read']) {
          if (source == 'tape') {
            for (var at in doc['run']['steps'][step]['read'][source]) {
              files.push(doc['run']['steps'][step]['read'][source][at]['file']);

              var part = doc['run']['steps'][step]['read'][source][at];
              for (var section in part['sections']) {
                var known = false;
                for (var other in sections) {
                  if (other == section) {
                    known = true;
                    break;
                  }
                }

                if (known == false) {
                  sections[section] = new Array();
                }

                for (var n in part['sections'][section]) {
                  var known = false;
                  var block = part['sections'][section][n];

                  for (var m in sections[section]) {
                    if (block == sections[section][m]) {
                      known = true;
                      break;
                    }
                  }

                  if (known == false) {
                    sections[section].push(block);
                  }
                }
              }
            }
          }
        } //END of what was read

	if ('store1' in doc['run'].steps) {
	  for (var name in doc['run']['steps']['store1']['written']) {
	    for (var at in doc['run']['steps']['store1']['written'][name]) {
	      logs.push(doc['run']['steps']['store1']['written'][name][at]['file']);
	    } //END of files
	  }//END of names
	}

        emit([doc['run_no'], doc['attempt']],
             {'step': step,
              'faults': doc['run']['steps'][step].faults,
              'files': files,
              'sections': sections,
	      'logs': logs,
	      'begin': begin,
	      'end': end});
      }
    } //END of steps
  }
}
//// where the logs of a chain are (after dmwm/WMCore)
function (doc) {
  if (doc['kind'] == 'run') {
    if (doc['run'].chain == null) {
      return;
    }

    links = doc.run.chain.split('/');
    lastLink = links.slice(-1)[0];
    stores = lastLink.indexOf('Store');
    if (stores >= 0) {
        if (null != doc.run.steps.store1) {
            storing = doc.run.steps.store1;
            place = storing.written.Logs[0].file;
            emit(doc.run.chain, place);
        }
    }
  }
}
//// written sets by their path (after dmwm/WMCore)
function(doc) {
  if (doc['kind'] == 'run') {
    if (doc['run'].chain == null) {
      return;
    }

    var request = doc['run'].chain.split('/')[1]

    for (var step in doc['run']['steps']) {
      var written = doc['run']['steps'][step]['written']
      for (var module in written) {
        for (var at in written[module]) {
          var file = written[module][at];

          if (module == 'Whole' || file.whole) {
            var path = '/' + file['set']['first'] +
                       '/' + file['set']['second'] +
                       '/' + file['set']['level'];
            emit([request, path], {'bytes': file['bytes'],
                                   'path': path,
                                   'entries': file['entries']});
          }
        }
      }
    }
  }
}
//// kinds of faults, sorted (after dmwm/WMCore)
function(doc) {
  if (doc.kind == "run_summary") {
    var kinds = [];
    for (var step in doc.faults) {
        for (var n in doc.faults[step]) {
            if ('kind' in doc.faults[step][n]) {
                kinds.push(doc.faults[step][n]["kind"]);
            }
        }
    }
    kinds.sort();
    emit([doc.state, doc.request, doc.exit, doc.site, kinds], {'rev': doc['_rev'], 'id': doc['_id']});
  }
}
//// elements that no site can take (after dmwm/WMCore)
function(doc, site) {
	var part = doc["Queue.Structures.Part"];

	function common(inputs) {
		var sites = null;
		for (var name in inputs) {
			if (sites === null) {
				sites = inputs[name];
			} else {
				sites = sites.filter(function(one) { return inputs[name].indexOf(one) !== -1; });
			}
		}
		return sites || [];
	}

	// known troubles only
	if (part) {
		// nothing that was taken
		if (part.State != 'Free') {
			return;
		}

		var sites = common(part.Reads);
		// somewhere there must be data
		if (part.Reads && toJSON(part.Reads) != '{}' && !sites.length) {
			emit('Data is nowhere');
			return;
		}
		// and it must be allowed there
		if (part.Allowed.length && sites.length) {
			var somewhere = false;
			for (var n = 0; n < part.Allowed.length; n++) {
				if (sites.indexOf(part.Allowed[n]) > -1) {
					somewhere = true;
					break;
				}
			}
			if (!somewhere) {
				emit('Data is nowhere allowed');
				return;
			}
		}
		// nor forbidden
		if (part.Forbidden.length && sites.length) {
			var everywhere = true
			for (var n = 0; n < sites.length; n++) {
				var site = sites[n];
				if (part.Forbidden.indexOf(site) === -1) {
					everywhere = false;
					break;
				}
			}
			if (everywhere) {
				emit('Data is forbidden everywhere');
				return;
			}
		}
	}
}
//// last state of a request (after dmwm/WMCore)

function(doc) {
  if (doc.kind == "request"){
    emit([doc.asked_on, doc.asked_by], {"state": doc.states[doc.states.length - 1].state, "group": doc.group}) ;
  }
}
//// number of members of an object (after dmwm/WMCore)
function(doc) {
  if (doc.bundle){

       var n=0;
       for (var f in doc.bundle.files){
           n++;
       }
       emit([doc.bundle.of], { "files"  :n, "set": doc.bundle.set,   "id": doc._id});
   }
}
//// measurements of the steps that measure (after dmwm/WMCore)
function(doc) {
  if (doc['kind'] == 'run') {
    for (var step in doc['run'].steps) {
      if (step.search('work') == -1) {
        continue;
      }

      if (doc['run']['steps'][step].measured) {
        emit([doc['run_no'], doc['attempt'], doc['timestamp']],
             doc['run']['steps'][step].measured);
      }
    }
  }
}
//// comments with a picture of who wrote them (after jchris/sofa)
function(doc) {
  if (doc.type == "comment") {
    doc.picture = "https://pictures.example/" + doc.author;
    emit([doc.post, doc.created_at], doc);
  }
};
//// stripped words of a description (after natevw/ShutterStem)
function (doc) {
    var PICTURE = "example.pictures.picture";
    if (!doc[PICTURE]) return;
    if (!doc.description) return;

    var stripped = doc.description.split(/\s+/).map(function (s) { return s.replace(/\W/g, '').toLowerCase(); });
    stripped.forEach(function (s) {
        if (s) emit(s);
    });
}
//// tiles of a map as digits (after natevw/ShutterStem)
function (doc) {
    if (!doc.geo) return;
    if (doc.geo.lat <= -90) return;

    function digits(place, LEVELS) {
        var BITS = Math.min(LEVELS || 16, 32),     // shifts know no more
            TILES = Math.pow(2, BITS),
            s = Math.sin(place.lat * Math.PI / 180),
            east = (place.lon + 180) / 360,
            south = 0.5 - Math.log((1 + s) / (1 - s)) / (4 * Math.PI),
            x = east * TILES, y = south * TILES;

        var found = [], left = BITS;
        while (left --> 0) {
            found.push((y & 1) * 2 + (x & 1));
            x = x >>> 1, y = y >>> 1;
        }
        return found.reverse();
    }
    emit(digits(doc.geo), doc.geo);
}
//// engines without a function are helped (after natevw/ShutterStem)
function (doc) {
    // for engines of long ago
    if (!Object.keys) {
        Object.keys = function (object) {
            var names = [], name;
            for (name in object) if (object.hasOwnProperty(name)) {
                names.push(name);
            }
            return names;
        };
    }

    var PICTURE = "example.pictures.picture";
    if (!doc[PICTURE]) return;

    Object.keys(doc.marks).forEach(function (kind) {
        var mark = doc.marks[kind];
        if (kind === "file") {
            emit([mark.folder._id, mark.name], kind);
        } else {
            emit(mark, kind);
        }
    });
};
//// pictures in an album, in order (after natevw/ShutterStem)
function (doc) {
    var ALBUM = "example.pictures.album";
    if (!doc[ALBUM]) return;

    var exports = {};
    exports.read = function (text) { return new Date(text); };
    var time = exports;

    var seconds = time.read(doc.made).getTime() / 1000;
    doc.pictures.forEach(function (picture, at) {
        emit([seconds, doc._id, at], picture);   // include_docs!
    });
}
//// steps of a path, for one kind with a long name (after natevw/Glob)
function (doc) {
    if (doc.kind != "https://kinds.example/blog/entry") return;
    if (doc.place) emit(doc.place.split("/"));
}
//// months without a century (after crccheck/Texas-Lobbying-CouchApp)
function(doc) {
  if (doc.total && doc.created_at) {
    var day = new Date(doc.created_at);
    var month = day.getMonth();
    if (month < 10) month = '0' + month;
    emit(day.getYear() +""+ month, +doc.total);
  }
}
//// names of places without articles and marks (after crccheck/Texas-Lobbying-CouchApp)
function(doc) {
    if (doc.venue){
        var where = {};
        var called = doc.venue.called;
        if (doc.venue.town) where.town = doc.venue.town;
        if (doc.venue.code) where.code = doc.venue.code.substr(0,4);
        called = called.toLowerCase().replace(/[^a-z0-9 ]/g,'').replace(/^\s*(an?)?\s+|\s+$/g, '').replace(/\s{2,}/g,' ');
        emit(called, where);
    }
}
//// rounded bounds of contracts (after crccheck/Texas-Lobbying-CouchApp)
function shorten(words){
    words = words.toLowerCase().replace(/[^-a-z0-9\s]+/g, '');
    words = words.replace(/-/g, "~");
    words = words.replace(/\s/g, "_");
    return words;
}
function(doc) {
    if (doc.kind == 'adviser'){
        for (var n in doc.contracts){
            var contract = doc.contracts[n];
            if (contract.with){
                var key = [shorten(contract.with), doc.year];
                var value = [Math.round(+contract.paid.least),
                             Math.round(+contract.paid.most),
                             contract.with,
                             1];
                emit(key, value);
            }
        }
    }
}
//// means of every three values (after daneroo/couchapp-imetrical)
function thin(values,by){// one of so many
  var thinned=[];
  for (var i=0;i<values.length;i+=by){
    var total=null;
    for (var j=0;j<by;j++){
      if (values[i+j]!==null){
        if (total===null){total=0;}
        total+=values[i+j];
      }
    }
    var mean = (total===null)?null:Math.round(total/by);
    thinned.push(mean);
  }
  return thinned;
}
function(doc) {
  if (doc.watts && doc.watts.length>0) {
    //var house = doc._id.split('-',1)[0];
    var three = thin(doc.watts,3);
    var signal = {
      by : 3,
      begin : doc.begin,
      watts : three,
    };
    emit(doc._id, signal);
  }
}
//// number and bytes of attachments of a name (after daneroo/couchapp-imetrical)
function(doc) {
  if (doc._attachments)
  for (var file in doc._attachments) {
    emit(["number",file], 1);
    emit(["bytes",file], doc._attachments[file].length);
  }
}
//// temperatures of vessels (after tmclane/fermware-gui)
function(doc) {
    if(doc.kind == 'temperature')
        emit([doc.vessel, doc.measured_at],
             {
                 "celsius": doc.celsius,
                 "kelvin": doc.celsius + 273.15
             });
}
//// letters of three colours (after lefant/greylistd-couchapp)
function(doc) {
  emit('all hosts', 1);
  emit('all letters', doc.letters);

  if (doc.colour == 'green') {
    emit('green hosts', 1);
    emit('green letters', doc.letters);
  } else if (doc.colour == 'amber') {
    emit('amber hosts', 1);
    emit('amber letters', doc.letters);
  }
}
//// parts of an address (after lefant/greylistd-couchapp)
function(doc) {
  if (doc.colour == 'amber') {
    emit( doc._id.split('.'), doc.letters);
  }
}
//// since when channels belong together (after gadamc/bolohwmap_couchapp)
function(doc) {
    if(doc.kind == "wiring" && doc.detector && isArray(doc.lines) && doc.since && doc.since.year &&
      doc.since.month && doc.since.day && doc.since.hour === undefined){
      for (var n in doc.lines) {
	     emit([doc.since.year, doc.since.month, doc.since.day, 0, doc['lines'][n] + "/" + doc.detector ], 1);
      }
    }

    if(doc.kind == "wiring" && doc.detector && isArray(doc.lines) && doc.since && doc.since.year &&
      doc.since.month && doc.since.day && doc.since.hour){
      for (var n in doc.lines) {
        emit([doc.since.year, doc.since.month, doc.since.day, doc.since.hour, doc['lines'][n] + "/" + doc.detector ], 1);
      }
    }

}
//// members and their values, of one kind (after gadamc/bolohwmap_couchapp)
function (doc) {
      if(doc.kind == 'wiring'){
	  for (var member in doc) {
	      emit( [member, doc[member]] , null);
	  }
      }
    }
//// first part of a measured name (after knutin/kprof_couchapp)
function (doc) {
    var steps = doc.measured.split(".");
    emit([steps[0], doc.timestamp], steps[1]);
}
//// approvals and rejections (after diretto/diretto-service-couchapp-v1)
function(doc)
{
	if(doc.kind === 'opinion')
	{
		if(doc.opinion < 0)
		{
			emit([doc.of,"against"], 1);
		}
		else if(doc.opinion > 0)
		{
			emit([doc.of,"for"], 1);
		}

	}
};
//// all that a map shows of a picture (after diretto/diretto-service-couchapp-v1)
/**
 * Places, pictures and their copies side by side.
 */
function(doc)
{

	if (doc.kind === 'position')
	{
		if(doc.north && doc.east && doc.north !== 0 && doc.east !== 0)
		{
			emit([doc.of,2], [doc.east, doc.north]);
		}
	}
	else if (doc.kind === 'picture')
	{
		emit([doc._id.substring(4),0], {"taken":doc.taken,"by":doc.by});
	}
	else if (doc.kind === 'copy')
	{
		emit([doc.of,1,doc._id.substring(5)], {"by":doc.by,"at":doc.at,"id":doc._id.substring(5)});
	}
};
//// contents or an empty object (after korczis/microcrawler-couchapp)
function (doc) {
    if (doc.kind && doc.kind == 'page') {
        var found = doc.found || {};
        emit(doc._id, found);
    }
};
//// marks as numbers (after zachsa/msc-2018-couchapps)
function(doc) {
    /* The key */
    var student;
    var subject;
    var term;

    /* The value */
    var mark;

    var kind = doc.kind;
    switch (kind) {
        case 'mark':
            student = doc.student;
            subject = doc.subject;
            term = doc.term;

            mark = doc.mark || 0;

            /* Texts become numbers */
            if (typeof mark !== 'number') {
                if (typeof mark !== 'string') return;
                var symbol = mark.toUpperCase().trim();

                /* Nothing without a meaning */
                if ([
                        'ILL',
                        'GONE',
                        'NA',
                        ''
                    ].indexOf(symbol) >= 0) return;

                switch (symbol) {
                    case 'U':
                        mark = 35;
                        break;
                    case 'LATE':
                        mark = 20;
                        break;
                    case 'MISSED':
                        mark = 20;
                        break;
                    default:
                        /* Without the last sign */
                        mark = parseFloat(mark.substring(0, mark.length - 1));
                        if (isNaN(mark)) return;
                        break;
                };
            };

            emit([student, subject, term], mark);
            break;

        case 'excursion':
            var day = new Date(doc.day);
            student = doc.student;
            subject = 0;
            term = day.getFullYear();
            mark = [0, 0];

            /* The middle of the year */
            var middle = 1467331200000
            var half = (day.getTime() - middle >= 0) ? 2 : 1;
            if (half === 1) {
                mark[0] = 1;
            } else {
                mark[1] = 1;
            };

            emit([student, subject, term], mark);
            break;

        default:
            break;
    };
};
//// symbols of examinations, thrown and caught (after zachsa/msc-2018-couchapps)
function(doc) {
    var marks = [
        null, null,
        null
    ];

    var symbols = {
        "A+": 95,
        "A": 85,
        "B": 75,
        "C": 65
    };

    function read(mark) {
        var result;
        try {
            var number = parseFloat(mark).toFixed(1);
            if (isNaN(number)) { // symbols
                if (typeof mark !== 'string') throw new Error("Neither symbol nor number");
                result = symbols[mark.toUpperCase().trim()] || 0;
            } else {
                result = number;
            };
        } catch (e) {
            result = 0;
        };
        return result;
    };

    if (doc.kind !== 'examination') return;

    try {
        var words = Number(read(doc["Words (final)"] || null));
        if (!words) throw new Error('Nothing is ignored');
        marks[0] = words;
        var numbers = Number(read(doc["Numbers (final)"] || null));
        if (!numbers) throw new Error('Nothing is ignored');
        marks[1] = numbers;
        marks[2] = Number(((words + numbers) / 2).toFixed(2));
    } catch (error) {
        switch (error.message) {
            case 'Nothing is ignored':
                throw error;
                break;
            default:
                marks = error.message;
                break;
        };
    };

    emit(doc.student, marks);
};
//// month of a time with a space (after benoitc/afgwardiary)
function(doc) {
    if (doc.When && typeof(doc.When) != "undefined") {
      date = doc.When.split(" ")[0];
      pieces = date.split("-");
      month = pieces[1] + "/" + pieces[0];
      emit([month, doc._id], null);
    }
}
//// what has a member with a dot (after natevw/noscript-dropbox)
function(doc) {
    if (doc['example.pictures.album']) emit(doc.made, doc.label);
}
//// messages of a room (after gdamjan/irclog-couchapp)
/*
 * By room and time, so that one room can be asked for
 * and comes in the order of its time.
 */

function map(doc) {
  if (doc.room && doc.said_at)
    emit([doc.room.toLowerCase(), doc.said_at], null);
};
//// words before two strokes (after gdamjan/irclog-couchapp)
function(doc) {
   if (doc.said && doc.said_at) {
      var mark = /(?:\s|^)(\S+?)!!(?:\s|$)/mg;
      while ((found = mark.exec(doc.said)) != null) {
         emit([found[1].toLowerCase(), doc.said_at], null);
      }
   }
}
//// pages and whether they have others below them (after BigBlueHat/BlueInk)
function(doc) {
  if (doc.kind === 'leaf') {
    emit(doc._id.split('/'),
         {
           caption: doc.caption,
           has_more: ('below' in doc && doc.below.length > 0)
         });
  }
}
//// who gives and who takes (after utunga/chchneeds)
function(doc) {
    if (doc.doc_type=="cry")
    {
		// from the words
        //that could be done before
        var what = "unclear";
		if (doc.words.match(/\#give/)) {
			what="gives";
		}
		else {
			for(var n in doc.labels) {
			   if (doc.labels[n].sort=="place") continue;
			   var word = doc.labels[n].word;
			   if (word == "take" ||
				   word == "takes" ||
				   word == "asks" ||
				   word == "please" ||
				   word == "takes")
			   {
				   what="takes";
				   break;
			   }
			   if (word == "spare")
			   {
				   what="gives";
				   break;
			   }
			}
		}

        var when = doc.heard
        var key

        // one kind after the other
        key = []
        key.push(what)
        key.push(when)
        emit(key, doc.words)
    }
}
//// labels of what is not done (after avalez/couchtasks)
function(doc) {
  if (doc.type && doc.type === 'item' && !doc.checked && doc.labels) {
    for (var n in doc.labels) {
      if (doc.labels[n] !== "") {
        emit([doc.labels[n]], null)
      }
    }
  }
}
//// what somebody did (after KoltesDigital/ticketact)
function(doc) {
	switch (doc.kind) {
	case 'fault':
		if (doc.given_to) {
			for (var n in doc.given_to) {
				emit([doc.given_to[n].person, doc.given_to[n].day, 'given', doc._id], doc.kind);
			}
		}
		break;

	case 'remark':
		emit([doc.person, doc.day, 'said', doc.on], doc.kind);
		break;
	}
}
//// words behind a hash, each once (after lennart/linkr)
function(doc) {
  if(doc.said) {
    var marked = {};
    doc.said.replace(/\#([\w\-\.]+)/g, function(all, word) {
      marked[word.toLowerCase()] = true;
    });
    for (var m in marked) {
      emit([m, doc.said_at], doc._id);
    }
  }
}
//// people behind an at (after jchris/toast)
function(doc) {
  if (doc.said && doc.state != "read") {
    doc.said.replace(/\@([\w\-]+)/g, function(all, name) {
      emit([name.toLowerCase(), doc.said_at], doc.room)
    });
  }
}
//// labels between commas (after motokazu/dropbucket)
function(doc){
	// commas only
	var labels = doc.label_list.split(",");
	for(var n = 0;n < labels.length;n++){
		emit(labels[n],1);
	}
}
//// all labels as one key (after omarkj/couch-popcorn)
function(doc) {
  if (doc.kind == 'Snippet' && !doc.Hidden && doc.labels.length > 0) {
      emit(doc.labels, 1);
  }
};
//// labels between commas without one space (after couchone/Newsroom)
function(doc) {
  if(!doc.label_list) { return; }
  doc.label_list.split(",").forEach(function(label) {
    emit(label.replace(/^\s|\s$/, ""), 1);
  });
}
//// words and pairs with how often they come (after wernwa/couchapp_physik)
function(doc) {

	// words and how often
  var often = {};

  // labels weigh more
  if (doc.labels!==undefined){
 	for (var n in doc.labels){
		var label = doc.labels[n];
		label = label.toLowerCase();
		if (often[label] === undefined) often[label] = 50;
		else often[label] = often[label]+50;
	}

  }

  var all = new Array();
  if (doc.formulas!==undefined){

	  var text = doc.formulas.replace(/ \\sum/,'')
					.replace(/ \\frac\{.*?\}/,'')
					.replace(/ \\sqrt\{.*?\}/,'')
					.toLowerCase();
	  var found = text.split(/[\W\s]+/);
  		all = all.concat(found);
  }

  if (doc.markup!==undefined){

	  var text = doc.markup.replace (/<.*?>/,'')
					.toLowerCase();
	  var more = text.split(/[\W\s]+/);
  		all = all.concat(more);
  }

	  // single words
	  for (var n in all){
	    var word = all[n];
	    if (word.length<2) continue;
		if (often[word] === undefined) often[word] = 1;
		else often[word] = often[word]+1;
	  }


	  // two beside each other
	  all = text.match(/\w[\w]+ \w[\w]+/g);

	  for (var n in all){
	    var pair = all[n];
	    if (pair.length<2) continue;
		if (often[pair] === undefined) often[pair] = 1;
		else often[pair] = often[pair]+1;
	  }


  	   for (var word in often){
   		 emit([word, often[word], doc.written],doc._id);
  		}

	// and the id
	emit([doc._id, 500, doc.written],doc._id);


}
//// numbers that are texts (after aces/Data-Query-Tool)
function(doc) {
    var answers = doc.sheet;
    var Form = doc.About.Form;
    var answer;
    if(answers && Form && doc.About.person) {
        for(question in answers) {
            if(answers.hasOwnProperty(question) && question[0] != '_') {
                answer = answers[question];
                // What looks like a number is one
                if(parseFloat(answer, 10) == answers[question]) {
                    answer = parseFloat(answer, 10);
                }
                emit([Form, question, answer], doc.About.person);
            }
        }
    }
}
//// things with what a list shows (after antics/inventoria)
function(doc) {
  if (doc.type == 'item' && doc.created_at) {
      emit(doc._id, {'list': doc.list, 'title': doc.title, 'checked': doc.checked});
  }
};
//// phrases and stars for a search (after chmit/TraduXio2)
/*
 * Whole words, phrases, beginnings and ends.
 */


function(doc) {

    const MARKS = /[\s\.;:\-,\!\?\)\(\]\[\{\}\'\`\‘\’\"\“\”\«\»\\\/]/g;

    /**
                All phrases that begin with each word:
                 [small]
                [small steps]
 */


    function index_text(text,about){
        //Marks separate words.
        var parts = text.replace(MARKS, " ").split(" ");
        for(var at=0; at <parts.length;at++){
            var part= parts[at].replace(MARKS, "");
            emit(part,about);

            // the beginning
            var letters = "";
            for(var n=0;n<part.length -1;n++){
                letters = letters + part[n];
                emit(letters+"*",about);


            }

            //the end
            letters = "";
            for(n = part.length -1 ;n > 0 ; n--){
                letters =part[n]+letters ;
                emit("*"+letters,about);

            }


            var phrase = part;

            for (var i =at+1;i<parts.length;i++){
                phrase = phrase + " " +  parts[i];

                emit(phrase,about);

            }
        }

    }

    if(doc.kind == "poem"){



        for(var n in doc.versions_of){


            for( var m in doc.versions_of[n].verses){
                var verse = doc.versions_of[n].verses[m];

                var  about={
                    "way" : "there",
                    "other":verse.text,
                    "own":doc.text_of.substring(verse.from,verse.to),
                    "version":{
                        "language":doc.versions_of[n].language

                    }


                };
                index_text(verse.text,about);

            }
        }


    }

}
//// kinds of records in blocks (after smeans/5w)
function (doc) {
  if (doc.hasOwnProperty('Record')) {
    switch (doc.Record) {
      case 'Firm':
      case 'Fair':
      case 'Report__x': {
        emit(doc.Title.toUpperCase(), doc.Title);
      } break;

      case 'Friend':
      case 'Guest': {
        // what means nothing

        var means = function (text) {
          if (!text) {
            return false;
          }

          var plain = text.trim().toLowerCase();
          switch (plain) {
            case 'none':
            case '-':
            case '--':
            case '(unknown)': {
              return false;
            }
          }

          return true;
        };


        var both = doc.Given + ' ' + doc.Family;

        if (means(doc.Given)) {
          emit(doc.Given, both);
        }

        if (means(doc.Family)) {
          emit(doc.Family, both);
        }
      } break;

      case 'Bill__x': {
        emit(doc.Bill_No__x, doc.Bill_No__x);
      } break;
    }
  }
}
//// comments before the function (after daleharvey/pastebin.me)
// what was left, with its time
// and nothing else
// as helpers are not needed

function(doc) {
  if( doc.snippet ) {
    emit(doc.left_at, {title:doc.label, id:doc._id});
  }
};
//// a value made before, on one line (after diogok/Pudim)
function(doc) {
    if(doc.said_at) {
        var message = {id: doc._id, room: doc.room, words: doc.said, state: doc.state,by: doc.by };
        emit(doc.said_at,message);
    }
}
//// share of tests that pass (after jchris/relaxville)
function(doc) {
  if (doc.checks && doc.machine) {
    // good and bad
    var good = 0, bad = 0;
    for (var n=0; n < doc.checks.length; n++) {
      if (doc.checks[n].result == "ok") {
        good++;
      } else {
        bad++;
      }
    };
    emit([doc.machine.system, doc.timestamp], {
      good : good,
      bad : bad,
      share : Math.round((good / (good + bad)) * 100)
    })
  }
};
//// what has a time but no ports (after timmajor/slowcontrol)
function(doc) {
  if (doc.timestamp && !(doc.ports)) {
      emit(doc.timestamp,doc._rev)
  }
};
//// conditions that begin lines (after henrypoydar/processing-js-studio)
function(doc) {
  if (doc.kind == "drawing"
      && doc.drawn_with
      && doc.drawn_with.brush)
  {
    emit(doc.drawn_with.brush, 1);
  }
}
//// labels and longer words of a title (after jpmens/scrumptious)
function(doc) {
	if (doc.url) {
		// labels in small letters
		if (doc.labels && doc.labels.length > 0) {
			for (var i = 0; i < doc.labels.length; i++) {
				emit(doc.labels[i].toLowerCase(), {
						title: doc.title,
						at: doc.url
					});
			}
		}

		// words in small letters
		if (doc.title) {
			var words = doc.title.split(/\s+/);
			for (var i = 0; i < words.length; i++) {
				if (words[i].length > 4) {
					emit(words[i].toLowerCase(), {
							title: doc.title,
							at: doc.url
						});
				}
			}
		}
	}
}
//// whose links these are (after benoitc/nymphormation)
function(doc) {
  if (doc.kind == "reference")
    emit(doc.by.login, doc.at);
}
//// labels between spaces in capitals (after andrewufrank/mynotes-js)
function(doc) { //a look at the kind first
    if (doc.kind === "memo") {
        var labels = doc.label_words.split(" ");
        for (var n = 0; n < (labels.length); n++) {
            var label = labels[n].toUpperCase();
            emit(label, null);  // not the id);
        }
    }
}
//// conflicts one by one (after iriscouch/manage_couchdb)
function(doc) {
  (doc._conflicts || []).forEach(function(other) {
    emit([other, doc._id], null);
  })
}
//// ids that are not what they should be (after plantnet/plantnet-datamanager)
function(doc) {
    // conflicts first

    //if(doc._id.substr(0, 8) === "_design/") {
    if (doc._id == '_design/x') {
        return;
    }

    if (doc._conflicts) {
        emit(doc._id, [doc._rev].concat(doc._conflicts));
        return;
    }

    // then wrong ids

    if(!doc.$made_by) { return; }

    var tools = require("views/lib/tools"),
    right = tools.key(doc).join("/");

    // only if they differ
    if (doc._id != right) {
        emit([0, right], { _rev: doc._rev, right: right });
    }
}
//// pictures of a document and of those above it (after plantnet/plantnet-datamanager)
function (doc) {
    // pictures only

    if (doc.$sort) {
        if (doc._attachments) {
            for (var file in doc._attachments) {
                if(doc._attachments[file].content_type.slice(0,6) === "image/") {
                    var id = encodeURIComponent(doc._id);
                    // without folders - slow!
                    var base = file;
                    var slash = base.lastIndexOf('/');
                    if (slash > -1) {
                        base = base.substr(slash + 1);
                    }
                    emit([doc.$sort, doc._id, base], {at : id + "/" + file, file : file}); // of the document
                    emit([doc.$sort, doc.$genus, base], {at : id + "/" + file, file : file}); // of the genus
                    emit([1, doc.$sort, base], {at : id + "/" + file, file : file}); // all
                    // above
                    if (doc.$above) {
                        for(var n=0, length=doc.$above.length; n < length; n++) {
                            if (doc.$above[n]) {
                                emit([2, doc.$above[n], base], {at : id + "/" + file, file : file});
                            }
                        }
                    }
                    emit([2, doc._id, base], {at : id + "/" + file, file : file});
                    // the document itself is above its files
                }
            }
        }
    }

}
//// changes of a text (after couchbaselabs/readme-backbone.js)
function(doc) {
  if (doc.changes) {
    doc.changes.forEach(function(change) {
      emit([change.at, change.by.name, change.before], change.after);
    });
  }
}
//// a function in brackets that another language made (after mikeymckay/coconut)
// Made by a compiler
(function(doc) {
  if (doc.heap && doc.heap === "helper") {
    return emit(doc.region, [doc._id.substring(7), doc.label]);
  }
});

//# sourceMappingURL=helpers.js.map
//// values of an object, with an undeclared name (after klml/dikid)
function(doc) {
  if (doc.helpers && doc.phase != 'closed' ) {
     for (helper in doc.helpers ) {
        emit([doc.helpers[helper]], helper);
    }
  }
}
//// menus of a site (after sander/couchdb-static-site)
function(doc) {
  if (doc.kind == 'leaf') {
    emit([doc._id, 'leaf'], doc.caption);
  } else if (doc._id == '*garden') {
    function walk(bed, menus) {
      emit([bed.id, 'frame'], doc.frames.plain);
      if (bed.below) {
        if (bed.below) for (var n in bed.below) {
          var menu = [];
          for (var m in bed.below) {
            var under = bed.below[m];
            menu[m] = { caption: under.caption, id: under.id };
            if (n == m) menu[m].here = true;
          }
          walk(bed.below[n], menus.concat([menu]));
        }
      }
      var menu = [];
      for (var m in bed.below) {
        var under = bed.below[m];
        menu[m] = { caption: under.caption, id: under.id };
      }
      if (menu.length) menus.push(menu);
      emit([bed.id, 'menus'], menus);
    }
    walk(doc.plan, []);
  }
}
//// a table of towns in a strict function (after drobbins/Dashboard)
function (doc) {
    /*jshint couch:true*/
    "use strict";
    if (doc.kind === "sheet" && !doc.gone){
        var tables, day, town;
        tables = {
            rivers : {
                "berlin" : "Spree",
                "bremen" : "Weser",
                //"frankfurt" : "Oder",
                "frankfurt" : "Main",
                "london" : "Thames",
                "st. ives" : "Great Ouse"
            }
        };
        day = new Date(doc.day);
        town = doc.town.toLowerCase();
        emit([tables.rivers[town] || "none", day.getUTCFullYear()], {town: doc.town, n: doc.n});
    }
}
//// pages by their last change (after namelessjon/notewiki)
function(doc) {
  if (doc.kind == "leaf") {
    emit(doc.changed_at, {
      caption : doc.caption,
      by : doc.by,
      changed_at : doc.changed_at,
      made_at : doc.made_at
    });
  }
};
//// chains of words on one line (after couchrest/couchrest)

function(doc){var parts=doc.body.split(/\W/).filter(function(p){return p.length>0}).map(function(p){return p.toLowerCase()});for(var n=0,l=parts.length;n<l;n++){emit(parts.slice(n,3),doc.title);}}
//// addresses of sounds (after couchrest/couchrest)

function(doc){var from=doc.read&&doc.read.from;if(!from)return;doc.parts&&doc.parts.forEach(function(p){p.sounds&&p.sounds.forEach(function(s){s.at&&emit(s.at,from);});});doc.tracks&&doc.tracks.track&&doc.tracks.track.forEach(function(t){t.places&&t.places.forEach(function(at){emit(at,from);});});doc.sounds&&doc.sounds.forEach(function(s){s.at&&emit(s.at,from);});}
//// names of members, as an example (after couchrest/couchrest)
// what a document has
// and its id

function(doc) {
  var m, members = []
  for (m in doc) members.push(m);
  emit(doc._rev, members);
};
//// applications with a capital (after kanso/kanso)
function (doc) {
        var id = doc._id;
        if (doc.language === 'javascript') {
            if (id !== '_design/own' && id.substr(0, 8) === '_design/') {
                var called = id.substr(8);
                var shown = called.substr(0, 1).toUpperCase() + called.substr(1);
                emit(called, shown.replace(/-/g, ' '));
            }
        }
    }
//// years, months, days of the week and hours (after KarolyRobert/couchdb-designer)
function map (doc){
    var time = new Date(doc.start);
    emit([time.getFullYear(), time.getMonth(), time.getDay(), time.getHours()],doc.title);
}
//// labels that are something, with arrows inside (after yssk22/sunrise)
function(doc) {
      if( doc.kind == 'memo' && doc.is_secret != true ){
        var labels = doc.labels || [];
        labels.filter(l => l && l != '').forEach(l => {
          emit([l, doc.made_at], doc.label_words);
        });
      }
    }
//// parts of a date without zeros before them (after yssk22/sunrise)
function(doc) {
      if( doc.type == 'event' ){
        var parts = doc.start.split('T')[0].split('-').map(p => {
          if( p[0] == '0' ){ // no octal numbers
            return parseInt(p[1]);
          }else{
            return parseInt(p);
          }
        });
        emit(parts, 1);
      }
    }
//// dates of another order by their digits (after open-learning-exchange/BeLL-Apps)
function(doc) {
            if (doc && doc.loggedOn) {
                var digits = doc.loggedOn.match(/\d+/g),
                    day = digits[0], // two of them
                    month = digits[1],
                    year = digits[2];
                var turned = year + '-' + month + '-' + day;
                emit([doc.school, turned], null);
            }
        }
//// an array in the key (after darmawanalbert/comp90024-assignment2)
function (doc) {
    var time = new Date(doc.said_at);
    var day = time.getDate();
    var month = time.getMonth() + 1;
    var year = time.getFullYear();
    emit([[year, month, day], doc.room.toLowerCase()], {id: doc._id, said: doc.said, by: doc.by, state: doc.state});
  }
//// every plain member but a few (after alainf/mmmm)
function (doc) {
    var m

    for (m in doc) {
      if (m !== '_rev' && m !== 'body' && m !== 'summary' && m !== 'text') {
        if (typeof doc[m] === 'string' || typeof doc[m] === 'boolean' || typeof doc[m] === 'number') {
          emit([m, doc[m]])
        } else if (typeof doc[m] === 'object' && doc[m].length) {
          doc[m].forEach(function (one) {
            emit([m, one])
          })
        }
      }
    }
  }
//// folded words and where each comes first (after GCRC/nunaliit)
function(doc) {

	function terms(text) {
		var found = {};
		text.split(/[^A-Za-z]+/).forEach(function(word, at) {
			if( word ) {
				found[word] = { folded: word.toLowerCase(), at: at };
			};
		});
		return found;
	};

	var map = typeof doc.body === 'string' ? terms(doc.body) : null;
	if( map ) {
		// One for each folded word
		var firsts = {};
		for(var word in map) {
			var folded = map[word].folded;
			var first = firsts[folded];
			if(!first){
				first = {
					at: map[word].at
				};
				firsts[folded] = first;
			} else {
				var at = map[word].at;
				if( at < first.at ) {
					first.at = at;
				};
			};
		};

		// Folded words where they begin
		for(var folded in firsts) {
			emit([folded, firsts[folded].at],null)
		};
	};
};
//// texts without a translation, constants first (after GCRC/nunaliit)
function(doc) {
	if( doc.kind
	 && 'to_translate' == doc.kind
	 && null == doc.translated
	 ) {
		// Nobody has done it yet
		var own = doc.own;
		var into = doc.into;

		emit([into,own], doc.by);
	};
};
//// pieces of names of files (after katiekloss/alexandria)
function(doc) {
    for(var place in doc.paths) {
        var path = doc.paths[place].toLowerCase();
        var pieces = path.split(/[^A-Za-z0-9]+/);
        pieces.map(
            function(piece) {
                emit(piece, place);
            }
        )
    }
}
//// both ends of a way (after wheresrhys/jnr)
function (doc) {

				var ends = doc.kind === 'way' ? [doc.begin.at, doc.end.at] : [];

				ends.forEach(function (end) {
					emit([end, doc.kind], doc.length_m);
				})
			}
//// messages that wait, with variables of the same names (after iilab/ltfhc-next)
function(doc) {
        var waits,
            tasks = doc.tasks || [],
            scheduled_tasks = doc.scheduled_tasks || [];

        /*
         * What a message needs:
         *  its task has the state `pending`
         *  and it has a text and somebody who gets it
         */

        function anyWaits(tasks) {
            var any = false,
                tasks = tasks || [];
            tasks.forEach(function(task) {
                if (task && task.state === 'pending') {
                    task.messages.forEach(function(message) {
                        if (message && message.message && message.to) {
                            any = true;
                        }
                    });
                }
            });
            return any;
        }

        waits = anyWaits(doc.tasks);

        // only without errors
        if (!waits && (!doc.errors || doc.errors.length === 0)) {
            waits = anyWaits(doc.scheduled_tasks);
        }

        if (waits) {
            emit([doc.from, doc.reported_date]);
        }
    }
//// places of a place, found by a tilde (after iilab/ltfhc-next)
function(doc) {
        var village,
            house;

        if (~['village', 'house', 'contact'].indexOf(doc.type)) {
            emit([null, doc._id], null);
        }

        if (doc.type === 'village') {
            emit([doc._id, doc._id], null);
        } else if (doc.type === 'house') {
            village = doc.parent;

            if (village) {
                emit([village._id, doc._id], null);
            }
        } else if (doc.type === 'contact') {
            house = doc.parent;
            if (house) {
                emit([house._id, doc._id], null);

                village = house.parent;
                if (village) {
                    emit([village._id, doc._id], null);
                }
            }
        }
    }
//// what was sent in time (after iilab/ltfhc-next)
function(doc) {
        var number,
            sent = doc.tasks && doc.tasks.some(function(task) {
                return task.state === 'sent';
            });

        if (doc.type === 'data_record' && doc.form && doc.errors) {
            number = doc.from;
            if (number || (doc.note && doc.note !== null)) {
                emit([doc.form, number, sent], 'came');
            }
        } else if (doc.kind === 'weekly' && doc.week && doc.year && doc.number) {
            tasks = doc.tasks;
            state = tasks.length ? tasks[0].state : 'lost';
            emit([doc.year, doc.week, doc.number], 'weekly ' + state);
        }
    }
//// members with dots in their names (after iilab/ltfhc-next)
function(doc) {
        var sort = "",
            title = "";

        if (doc.pattern == 'form' && doc.class == 'pattern') {
            for (var member in doc.members) {
                var title = doc.members[member].input && doc.members[member].input.title
                var sort = doc.members[member].input && doc.members[member].input.sort
                if (title) emit([title, member, sort])
            }
        }
    }
//// boards by all that they hold (after mastbaum/debugdb)
function(doc) {
        if(doc.setup) {
            doc.setup.boards.forEach(
               function(board) {
                   emit(board.board_no, {'good': doc.good, 'of': doc.kind, 'at': doc.made_at});
               }
            );
        }
    }
//// all sets of labels (after Zetaphor/couchapp-design-helper)
function(doc) {
    var subsets = function(all, m) {
        for (var j, l = all.length, i = (1 << l) - 1, sets = new Array(i); i;)
            for (sets[--i] = [], j = l; j; i + 1 & 1 << --j && (sets[i].push(m ? j : all[j])));
        return sets;
    };
    var given = doc.labels
    var often = {};
    for (var n in given) {
        var label = given[n].toLowerCase();
        if (label == "") continue;
        if (!often[label]) {
            often[label] = 1;
        } else {
            often[label]++;
        }
    }
    var labels = [];
    for (var label in often) {
        labels.push(label);
    }
    var sets = subsets(labels, 0);
    for (var n in sets) {
        emit(sets[n], {
            kind: doc.kind,
            made_at: doc.made_at,
            labels: doc.labels
        });
    }
}
//// both players of a game (after coastwise/tictactoe-couchapp)
function(doc) {
	if (doc.sides) {
		emit([doc.sides[1], doc.sides[0]], doc.moves);
	}
};
//// a member more for one class (after kramapet/triplog-couchapp)
function (doc) {
	value = {
		'class': doc.class,
		'text': doc.text_of,
		'at': doc.shown_at,
		'caption': doc.caption,
	};

	if (doc.class == 'walk') {
		value.line = doc.line;
	}

	emit(doc.shown_at, value);
}
//// what has two members (after BigBlueHat/annotator-couchapp)
function(doc) {
  if ('quoted' in doc && 'spans' in doc) {
    emit(doc.quoted, doc.spans.length);
  }
}
//// words as they are written (after brasfonseca/couchdb_example_wiki)
function(doc) {
    if(doc.type == 'post') {
      var parts = doc.title.split(/\W/);
      parts.forEach(function(part) {
        if (part.length > 0) emit(part, doc.title);
      });
    }
  }
//// a space before the bracket (after drsm79/CouchDB-Kanban-Board)
function(doc) {
  if (doc.column){emit (doc.column, 1)};
  if (doc.column_no) {emit (doc._id, 0)}
}
//// elements of a tree by what is above them (after digitalheir/dutch-case-law-to-couchdb)
function (doc) {
            var tree = null;
            try {
                tree = require('views/lib/tree');
            } catch (error) {
                tree = {
                    called: function (node) { return node[0]; },
                    each: function (node, then) {
                        for (var n = 0; node[1] && n < node[1].length; n++) then(node[1][n]);
                    }
                };
            }
            function emitAbove(node) {
                tree.each(node, function (under) {
                    if (tree.called(under) == 'no') {
                        emit([tree.called(node), doc._id], 1);
                    }

                    emitAbove(under);
                });
            }

            if (doc.tree) {
                emitAbove(doc.tree);
            }
        }
//// who said so, at a name with a colon (after digitalheir/dutch-case-law-to-couchdb)
function (doc) {
    if(doc['from'] == 'archive.example' && doc['dc:author']){
        emit(doc['dc:author']['@no'],1);
    }
}
//// ranks of users (after eHealthAfrica/couchdb-user-management-app)
function (doc) {

  var rank = "rank:none";

  if (doc.shop && doc.shop.till && Object.keys(doc.shop.till).length > 0) {
    rank = "rank:seller";
  }
  else if (doc.shop && doc.shop.office) {
    rank = doc.shop.office.may.rank;
  }
  emit(rank, doc.name);
}
//// a key that grows (after saibatizoku/tantan-couchapp)
function(doc) {
  if (doc.done_on) {
      if ((doc.sort == "weighing") || (doc.sort == "feeding") || (doc.sort =="look")) {
        var key = [doc.pond];
        doc.done_on.map(function(part) { key.push(part);});
        emit(key, doc.result);
      }
  }
};
//// functions that are used before they come (after venkateshreddy/pangea_couchapp)
function(doc) {
	 function dayOf(time){
	        day_temp = new Date(time);
	        return day_temp.getFullYear()+""+twoDigits(day_temp.getMonth()+1)+""+twoDigits(day_temp.getDate());
	        function twoDigits(number){
	                return (number < 10 ? '0' : '') + number
	        }
	 }
	 if(parseInt(doc.asked_at)>parseInt(dayOf("2016-02-28T12:00:00Z"))){
		 emit(doc._id, {
		      way : doc.way,
		      at : doc.asked_at,
		      with : decodeURIComponent(doc.asked_with)
		});
	}

};
//// answers of all pages together (after Tangerine-Community/Tangerine)
function(doc) {
  if (doc.pile === "FilledForm") {
    if (doc.form && doc.form.no === 'person') {
      return emit(doc._id.substr(doc._id.length-4, doc._id.length), true)
    }
    var fields = doc.pages.reduce(function(all, page) { return all.concat(page.fields)}, [])
    var personField = null
    fields.forEach(function(field) {
      if (field.called === 'person') {
        personField = field
      }
    })
    if (personField) {
      emit(personField.holds.substr(personField.holds.length-4, personField.holds.length), true)
    }
  }
}
//// forms of a month by its name (after Tangerine-Community/Tangerine)
function(doc) {
  if (doc.form && doc.form.no) {
      const NAMES = ['I', 'II', 'III', 'IV', 'V', 'VI', 'VII', 'VIII', 'IX', 'X', 'XI', 'XII'];
          const began = new Date(doc.began);
          const key = began.getFullYear() + '-' + NAMES[began.getMonth()] + '-' + doc.form.no;
    return emit(key, doc.began)
  }
}
//// the last place that is filled in (after Tangerine-Community/Tangerine)
function(doc) {
  if (doc.pile === "FilledForm" && doc.sort === "trouble") {
    var last;
    if (doc.where) {
      for (var level in doc.where) {
        if (doc.where.hasOwnProperty(level)) {
          if (doc.where[level]) {
            last = doc.where[level]
          }
        }
      }
    }
    if (doc.steps && doc.steps[0] && doc.steps[0].with && doc.steps[0].with.clash) {
      emit([doc.state,"clash",last, doc.began])
    } else {
      emit([doc.state,"trouble",last, doc.began])
    }
  }
}
//// names of own members of an object (after Tangerine-Community/Tangerine)
function(doc) {
    if (doc.where) {
      Object.getOwnPropertyNames(doc.where).forEach(function(level) {
        // Each level counts
        emit(doc.where[level], 1)
      })
    }
  }
//// the last of some, or nothing (after Tangerine-Community/Tangerine)
function (doc) {
    var latest
    if (doc.copied && doc.copied.length > 0) {
      latest = doc.copied[doc.copied.length - 1]
    }
    var about = {
      _id: doc._id,
      given_on: doc.given_on,
      kind:doc.kind,
      latest: latest
    }
    emit(doc._rev, about);
  }
//// ends of keys by their marks (after leapcode/leap_web)
function(doc) {
  if (doc.kind != 'Passport') {
    return;
  }
  if (typeof doc.stamps === "object") {
    for (stamp in doc.stamps) {
      if (doc.stamps.hasOwnProperty(stamp)) {
        emit(doc.stamps[stamp], stamp);
      }
    }
  }
}
//// who took part in a talk, each once (after leapcode/leap_web)
function(doc) {
  var seen = {}
  if (doc['type'] == 'post' && doc.comments) {
    doc.comments.forEach(function(comment){
      if (comment.author && !seen[comment.author]) {
        //not twice
        seen[comment.author] = true;
        emit([comment.author, doc.created_at], 1);
      }
    });
  }
}
//// null or missing in brackets (after leapcode/leap_web)
function (doc) {
  if ((doc['kind'] == 'Passport') && (doc['given_on'] != null) && (doc['warned_on'] == null)) {
    emit(doc['given_on'], 1);
  }
}
//// claims with their values (after inventaire/inventaire)
doc => {
      if (doc.type === 'thing' && !('moved_to' in doc)) {
        for (const says in doc.says) {
          for (const value of doc.says[says]) {
            emit([ says, value ], doc.says['is:a'][0])
          }
        }
      }
    }
//// parts of an id, taken apart (after inventaire/inventaire)
doc => {
      const [ thing, number ] = doc._id.split(':')
      emit([ parseInt(number), thing ], null)
    }
//// whole days of a time (after inventaire/inventaire)
doc => {
      const day = new Date(doc.timestamp * 1000).toISOString().split('T')[0]
      emit([ day, doc.votes ], null)
    }
//// edits by what they touch (after inventaire/inventaire)
doc => {
      const { editor, edited } = doc
      // An object, so that each comes once
      const touched = {}
      for (const edit of doc.edits) {
        // what only checks is left out
        if (edit.does !== 'check') {
          const part = edit.at.split('/')[2]
          if (part != null) {
            touched[part] = true
          }
        }
      }
      for (const part of Object.keys(touched)) {
        emit([ editor, part, edited ])
      }
    }
//// values that edits add, with a function before (after inventaire/inventaire)
function emitValue (says, value, edited) {
  if (typeof value === 'string' && (value.startsWith('own:') || value.startsWith('other:'))) {
    emit([ value, edited ], says)
  }
}
function (doc) {
        const { edited } = doc
        for (const edit of doc.edits) {
          if (edit.does === 'put') {
            const [ , part, says, at ] = edit.at.split('/')
            if (part === 'says') {
              if (at != null) {
                emitValue(says, edit.value, edited)
              } else if (says != null) {
                for (const one of edit.value) {
                  emitValue(says, one, edited)
                }
              }
            }
          }
        }
      }
//// labels of persons as a set (after inventaire/inventaire)
function plain (label) {
  return label
  .trim()
  .replace(/\s\w\.\s?/g, ' ')
  .replace(/\s\s/g, ' ')
  .toLowerCase()
}
function (doc) {
        if (doc.type !== 'thing' || 'moved_to' in doc) return

        // Persons only
        if (doc.says == null || doc.says['is:a'] == null) return
        if (doc.says['is:a'][0] !== 'own:person') return

        if (doc.called != null) {
          const labels = new Set(Object.values(doc.called).map(plain))
          labels.forEach(label => emit(label, null))
        }
      }
//// hosts by their place in an address (after inventaire/inventaire)
doc => {
      if (doc.by && doc.by.home) {
        const host = doc.by.home.split('/')[2]
        emit(host, null)
      }
    }
//// extensions with a file to begin with (after garden20/garden)
function map(doc) {
    if (doc.extension && doc.extension.kind === 'panel' && doc.extension.begin) {
        emit(doc._id, doc.extension.begin);
    }
}
//// one variable for two loops (after dimagi/bhoma)

function(doc) {
    /*
     * which file a sheet belongs to
     */
    if (doc.doc_type == "File") {
        for (n in doc.folders) {
            folder = doc.folders[n];
            for (n in folder.sheets) {
                emit(folder.sheets[n]._id, folder.title);
            }
        }
    }
}
//// an object as a table (after dimagi/bhoma)
function(doc) {
  if (doc.doc_type == "Animal") {
    if (doc.called && doc.sex) {
      emit(['name-' + {c: 'cock', h: 'hen'}[doc.sex], doc.called], 1);
    }
    if (doc.breed) {
      emit(['breed', doc.breed], 1);
    }
    if (doc.stable && doc.stable.farm) {
      emit(['farm', doc.stable.farm], 1);
    }
  }
}
//// a key of trimmed texts, some missing (after dimagi/bhoma)
function(doc) {
    /*
     * From what is known to what is special: the farm, the breed
     * and at last a name.
     *
     * Without spaces around them, in small letters.
     */

    var tidy = function(text) {
        if (text) {
            return text.trim().toLowerCase();
        }
    }
    if (doc.doc_type == "Animal") {

        emit([tidy(doc.stable ? doc.stable.farm : ""),
              tidy(doc.breed),
              tidy(doc.father),
              tidy(doc.rings ? doc.rings[0] : "")],
             null);

    }
}
//// sums of a register (after dimagi/bhoma)
function(doc) {
    /*
     * Register of eggs
     */

    KIND = "https://kinds.example/eggs"

    if (doc["@kind"] == KIND)
    {
        counted = doc.counted_on ? new Date(doc.counted_on) : null;
        if (counted == null)  {
            log("no day in document " + doc._id + ". It counts nowhere");
            return;
        }
        number = function(text) {
            if (text == null || text == "") {
                return 0;
            }
            return parseInt(text);
        }
        list = function(some) {
            return some ? (isArray(some) ? some : [some]) : [];
        }
        emit([doc.meta.farm, counted.getFullYear(), counted.getMonth(), "all", "eggs"], number(doc.eggs));
        emit([doc.meta.farm, counted.getFullYear(), counted.getMonth(), "all", "chicks"], number(doc.chicks));
        broken = list(doc.broken);
        for (n in broken) {
            egg = broken[n];
            emit([doc.meta.farm, counted.getFullYear(), counted.getMonth(), egg.size, "by", egg.by], 1);
            emit([doc.meta.farm, counted.getFullYear(), counted.getMonth(), egg.size, "at", egg.at], 1);
	    }

    }
}
//// a member with a sharp (after dimagi/bhoma)
function(doc) {
    if (doc["#sort"] == "Sheet") {
        if (doc["#animal"]) {
            emit(doc["#animal"], null);
        }
    }
}
//// parts of a payment until there are no more (after Accelerate-net/vegaPOS)
function (doc) {
  if(doc.paid_by == 'SEVERAL' && doc.paid_on){
    var part = 0;
    while(doc.payments[part]){
      emit([doc.payments[part].by, doc.paid_on], doc.payments[part].cents);
      part++;
    }

  }
}
//// both sides of a transfer (after deefactorial/openmoney-mobile)
function(doc) {
function isNumber(n) {
return !isNaN(parseFloat(n)) && isFinite(n);
}
if (doc._id.substring(0,5) != "sync_" && doc.kind == "transfer" && doc.giver && doc.taker && typeof doc.amount != 'undefined' && parseFloat(doc.amount) >= 0 && doc.unit && doc.timestamp) {
if (typeof doc.checked != 'undefined' && doc.checked === false) {
} else {
if(isNumber(doc.amount)){
emit( "account," + doc.giver + "," + doc.unit, -doc.amount )
emit( "account," + doc.taker + "," + doc.unit, doc.amount )
}
}
}
}
//// keywords of every document, or an exception (after ffbit/getting-started-with-couchdb)
function(doc) { for (var n = 0; n < doc.labels.length; n++) { emit(doc.labels[n], doc._id); } }
//// words with a hash and the time in milliseconds (after benel/TP-CouchDB)
function(doc) {
  const at = new Date(doc.said_at).getTime();
  if (doc.said) {
    var tags = doc.said.match(/#\w+/g);
    for (var n in tags) {
      emit([tags[n].substring(1), at]);
    }
  }
}
//// three members for every document (after crkn-rcdr/Access-Platform)
function (doc) {
    emit(doc._id, {
      kind: doc.kind,
      shown: doc.shown,
      caption: doc.caption,
    });
  }
//// one or several values, known by their constructor (after dpla-attic/ingestion)
function(doc) {source = doc._id.split('-').shift(); m = doc.made_of; if (m) { if (m.constructor.toString().indexOf('Array') == -1) {m = new Array(m); } for (n=0; n<m.length; n++) { emit([source, doc['_id']], m[n]); }} else { emit([source, doc['_id']], '(MADE OF NOTHING)'); }}
//// a declared function and then its name (after gdamjan/irclog-couchapp)
function map(doc) {
  if (doc.type === 'comment' && doc.created_at) {
    emit([doc.author, doc.created_at], doc.text);
  }
}; map
