function (doc, old, user, security) {
  var refuse = function (reason) { throw { forbidden: reason }; };
  var overlap = function (some, others) {
    return (others || []).some(function (one) { return some.indexOf(one) >= 0; });
  };
  var admins = (security && security.admins) || {};
  var isServerAdmin = user.roles.indexOf('_admin') >= 0;
  var isAdmin = isServerAdmin || overlap([user.name], admins.names) || overlap(user.roles, admins.roles);

  if (doc._deleted === true) {
    if (!isServerAdmin && !(old && old.name === user.name)) refuse('Only admins may delete other user docs.');
    return;
  }
  if (doc.type !== 'user' || (old && old.type !== 'user')) refuse('doc.type must be user');

  var name = doc.name, roles = doc.roles;
  if (!name) refuse('doc.name is required');
  if (!roles) refuse('doc.roles must exist');
  if (!Array.isArray(roles)) refuse('doc.roles must be an array');
  if (!roles.every(function (role) { return typeof role === 'string'; })) refuse('doc.roles can only contain strings');
  if (doc._id !== 'org.couchdb.user:' + name) refuse('Doc ID must be of the form org.couchdb.user:name');
  if (old && old.name !== name) refuse('Usernames can not be changed.');

  if (doc.password_sha && !doc.salt) {
    refuse('Users with password_sha must have a salt.See /_utils/script/couch.js for example code.');
  }
  var scheme = doc.password_scheme;
  if (scheme && ['simple', 'pbkdf2', 'simple+pbkdf2'].indexOf(scheme) < 0) {
    refuse('Password scheme `' + scheme + '` not supported.');
  }
  if (scheme === 'pbkdf2') {
    if (typeof doc.iterations !== 'number') refuse('iterations must be a number.');
    if (typeof doc.derived_key !== 'string') refuse('derived_key must be a string.');
  }

  if (!isAdmin && old) {
    if (user.name !== name) refuse('You may only update your own user document.');
    var before = (old.roles || []).slice().sort(), after = roles.slice().sort();
    if (JSON.stringify(before) !== JSON.stringify(after)) refuse('Only _admin may edit roles');
  }
  if (!isAdmin && !old && roles.length > 0) refuse('Only _admin may set roles');

  if (roles.some(function (role) { return role.charAt(0) === '_' && role !== '_metrics'; })) {
    refuse('No system roles (starting with underscore) in users db.');
  }
  name = String(name);
  if (name.charAt(0) === '_') refuse('Username may not start with underscore.');
  if (name.indexOf(':') >= 0) refuse('Character `:` is not allowed in usernames.');
}
