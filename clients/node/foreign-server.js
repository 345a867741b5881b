// A replication peer that is not Settee: PouchDB in leveldb behind express-pouchdb. `node foreign-server.js DIRECTORY PORT`
// prints the port as soon as the server listens.
'use strict';

const path = require('node:path');
const express = require('express');
const PouchDB = require('pouchdb');

const [directory, port] = process.argv.slice(2);
const app = express();
const options = { mode: 'minimumForPouchDB', inMemoryConfig: true, logPath: path.join(directory, 'log.txt') };
app.use(require('express-pouchdb')(PouchDB.defaults({ prefix: `${directory}${path.sep}` }), options));
const listener = app.listen(Number(port), '127.0.0.1', () => console.log(listener.address().port));
