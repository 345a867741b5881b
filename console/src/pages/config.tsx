/** The configuration by section, each key with its meaning and default where the server tells them; and CORS as a form. */
import { useEffect, useState } from 'preact/hooks';
import { CORS_HEADERS, CORS_METHODS, type Cors, type Setting, corsOf, readConfig, readSettings, setConfig, setCors, unsetConfig } from '../api/config.ts';
import { enc } from '../api/http.ts';
import { setParams, useParam, useRoute } from '../router.ts';
import { Button, Card, Check, Confirm, Dialog, Empty, Field, Link, Notice, PageHead, Problem, Skeleton, Tabs, Tag, say } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useAsk, useTitle } from '../ui/use.ts';

interface Entry {
  section: string;
  key: string;
  value: string | undefined;
  setting: Setting | undefined;
}

export function Config() {
  useTitle('Configuration');
  const { path } = useRoute();
  const isCors = path[1] === 'cors';
  return (
    <>
      <PageHead title="Configuration" note="Of the node that answers. Changes are written to its file."><CopyAs request={{ method: 'GET', path: '_node/_local/_config' }} /></PageHead>
      <Tabs label="Parts of the configuration" items={[{ text: 'All keys', to: ['config'], current: !isCors }, { text: 'CORS', to: ['config', 'cors'], current: isCors }]} />
      {isCors ? <CorsForm /> : <Keys />}
    </>
  );
}

function Keys() {
  const [chosen] = useParam('section');
  const [typed] = useParam('q');
  const [dialog, setDialog] = useParam('do');
  const asked = useAsk(async (signal) => {
    const [sections, settings] = await Promise.all([readConfig(signal), readSettings(signal)]);
    return entries(sections, settings);
  }, []);
  if (asked.error) return <Problem error={asked.error} again={asked.again} />;
  if (!asked.data) return <Skeleton lines={10} />;
  const all = asked.data;
  const sections = [...new Set(all.map(({ section }) => section))].sort();
  const section = sections.includes(chosen) ? chosen : sections.includes('couchdb') ? 'couchdb' : (sections[0] ?? '');
  const hay = typed.toLowerCase();
  const shown = all.filter((entry) => (hay === '' ? entry.section === section : `${entry.section} ${entry.key} ${entry.value ?? ''} ${entry.setting?.doc ?? ''}`.toLowerCase().includes(hay)));
  return (
    <>
      <div class="toolbar"><div class="grow"><Field label="Search keys and meanings" hideLabel type="search" value={typed} onValue={(q) => setParams({ q }, true)} placeholder="Search keys, values and meanings" /></div><Button icon="plus" onClick={() => setDialog('add')}>Add a key</Button></div>
      <div class="config">
        <nav aria-label="Sections">{sections.map((name) => <Link key={name} to={['config']} query={{ section: name }} aria-current={hay === '' && name === section ? 'true' : undefined}>{name}</Link>)}</nav>
        <Card flush title={hay === '' ? `[${section}]` : `${shown.length} keys`}>
          {shown.length === 0 && <Empty icon="search" title="No key matches" />}
          <div class="key-list">{shown.slice(0, 200).map((entry) => <Key key={`${entry.section}/${entry.key}`} entry={entry} withSection={hay !== ''} again={asked.again} />)}</div>
        </Card>
      </div>
      {dialog === 'add' && <Add section={section} onClose={() => setDialog('')} onDone={asked.again} />}
    </>
  );
}

function entries(sections: Record<string, Record<string, string>>, settings: Setting[]): Entry[] {
  const known = new Map(settings.map((setting) => [`${setting.section}/${setting.key}`, setting]));
  const set = Object.entries(sections).flatMap(([section, keys]) => Object.entries(keys).map(([key, value]): Entry => ({ section, key, value, setting: known.get(`${section}/${key}`) })));
  const there = new Set(set.map(({ section, key }) => `${section}/${key}`));
  const implied = settings.filter(({ section, key }) => !there.has(`${section}/${key}`)).map((setting): Entry => ({ section: setting.section, key: setting.key, value: undefined, setting }));
  return [...set, ...implied].sort((a, b) => (a.key < b.key ? -1 : 1));
}

const APPLIES = { 'at-once': '', 'after-restart': 'counts after a restart', nowhere: 'kept, and not used by this server' };

function Key({ entry, withSection, again }: { entry: Entry; withSection: boolean; again: () => void }) {
  const { section, key, value, setting } = entry;
  const shown = value ?? setting?.default ?? '';
  const [text, setText] = useState(shown);
  const [asking, setAsking] = useState(false);
  const { busy, error, run } = useAction();
  useEffect(() => setText(shown), [shown]);
  const isSwitch = /^(?:true|false)$/.test(setting?.default ?? shown);
  const isDefault = setting?.default !== null && setting?.default !== undefined && shown === setting.default;
  const save = (next: string) => void run(async () => {
    const applies = await setConfig(section, key, next);
    say(applies === 'after-restart' ? `${key} is set, and counts after a restart.` : `${key} is set.`);
    again();
  });
  const label = `${section} ${key}`;
  return (
    <div class="key-item">
      <div class="stack small">
        <span class="row"><span class="name">{withSection ? `[${section}] ` : ''}{key}</span>{!isDefault && value !== undefined && setting && <Tag kind="accent">changed</Tag>}{setting && APPLIES[setting.applies] && <Tag kind="warn">{APPLIES[setting.applies]}</Tag>}</span>
        {setting?.doc && <p class="note">{setting.doc}</p>}
        {setting?.default !== null && setting?.default !== undefined && !isDefault && <p class="note break">Default: <code>{setting.default === '' ? 'empty' : setting.default}</code></p>}
        <Problem error={error} />
      </div>
      <div class="value-row">
        {isSwitch ? <Check label={text === 'true' ? 'on' : 'off'} checked={text === 'true'} disabled={busy} onChecked={(on) => save(String(on))} />
          : section === 'admins' ? <span class="note">changed under <Link to={['users']}>Users</Link></span>
            : <><Field label={label} hideLabel value={text} onValue={setText} mono onKeyDown={(event) => { if (event.key === 'Enter') save(text); }} />{text !== shown && <Button kind="primary" busy={busy} onClick={() => save(text)}>Save</Button>}</>}
        {value !== undefined && section !== 'admins' && (!setting || !isDefault) && <Button kind="quiet" icon="trash" label={setting ? `Back to the default of ${label}` : `Delete ${label}`} onClick={() => setAsking(true)} />}
      </div>
      {asking && <Confirm title={setting ? 'Back to the default?' : 'Delete this key?'} verb={setting ? 'Back to the default' : 'Delete'} onClose={() => setAsking(false)} act={async () => { await unsetConfig(section, key); again(); }}><p>[{section}] {key} = {shown}</p></Confirm>}
    </div>
  );
}

function Add({ section, onClose, onDone }: { section: string; onClose: () => void; onDone: () => void }) {
  const [name, setName] = useState(section);
  const [key, setKey] = useState('');
  const [value, setValue] = useState('');
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await setConfig(name, key, value);
      onDone();
      onClose();
      setParams({ section: enc(name) === name ? name : undefined, do: undefined });
    });
  };
  return (
    <Dialog title="Add a key" onClose={onClose}><form class="stack" onSubmit={submit}>
      <Field label="Section" value={name} onValue={setName} required mono /><Field label="Key" value={key} onValue={setKey} required mono autofocus /><Field label="Value" value={value} onValue={setValue} mono />
      <Problem error={error} /><div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
    </form></Dialog>
  );
}

function CorsForm() {
  const asked = useAsk((signal) => readConfig(signal).then(corsOf), []);
  const [draft, setDraft] = useState<Cors>();
  const { busy, error, run } = useAction();
  useEffect(() => { if (asked.data) setDraft(asked.data); }, [asked.data]);
  if (asked.error) return <Problem error={asked.error} />;
  if (!draft) return <Skeleton />;
  const risky = draft.enabled && draft.credentials && draft.origins.split(',').some((origin) => origin.trim() === '*');
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await setCors(draft);
      say('CORS is saved.');
      asked.again();
    });
  };
  return (
    <form class="stack narrow" onSubmit={submit}>
      <Card>
        <Check label="Let pages of other origins use this server" checked={draft.enabled} onChecked={(enabled) => setDraft({ ...draft, enabled })} hint="Needed by PouchDB and other applications in browsers." />
        <Field label="Origins" value={draft.origins} onValue={(origins) => setDraft({ ...draft, origins })} mono placeholder="https://app.example.com, http://localhost:3000" hint="Separated by commas; * is every page in the world." />
        <Check label="With cookies and passwords" checked={draft.credentials} onChecked={(credentials) => setDraft({ ...draft, credentials })} />
        <Field label="Headers" value={draft.headers} onValue={(headers) => setDraft({ ...draft, headers })} mono placeholder={CORS_HEADERS} />
        <Field label="Methods" value={draft.methods} onValue={(methods) => setDraft({ ...draft, methods })} mono placeholder={CORS_METHODS} />
        {risky && <Notice kind="warn">Every page that one of your users visits could act in their name. Name the origins instead.</Notice>}
        <Problem error={error} />
        <div class="actions"><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
      </Card>
    </form>
  );
}
