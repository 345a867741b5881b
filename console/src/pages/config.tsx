/** The configuration by section, with descriptions and defaults if the server returns them, and a form for CORS. */
import { useState } from 'preact/hooks';
import { CORS_HEADERS, CORS_METHODS, type Cors, type Setting, corsOf, readConfig, readSettings, setConfig, setCors, unsetConfig } from '../api/config.ts';
import { objectSource } from '../api/export.ts';
import { setParams, useDialog, useParam, useRoute } from '../router.ts';
import { ChoiceField } from '../ui/choice.tsx';
import { Restored, useDraft, useForm } from '../ui/draft.tsx';
import { Export } from '../ui/export.tsx';
import { Button, Card, Check, Confirm, Dialog, Empty, Field, Link, Notice, PageHead, Problem, Sentence, Skeleton, Tabs, Tag, showToast } from '../ui/kit.tsx';
import { CopyAs } from '../ui/menu.tsx';
import { useAction, useRequest } from '../ui/use.ts';
import { plural } from '../ui/words.ts';

interface Entry {
  section: string;
  key: string;
  value: string | undefined;
  setting: Setting | undefined;
}

export function Config() {
  const { path } = useRoute();
  const isCors = path[1] === 'cors';
  return (
    <>
      <PageHead title="Configuration" note="Configuration of the node that serves this page. Changes are written to its configuration file."><CopyAs request={{ method: 'GET', path: '_node/_local/_config' }} /></PageHead>
      <Tabs label="Parts of the configuration" items={[{ text: 'All keys', to: ['config'], current: !isCors }, { text: 'CORS', to: ['config', 'cors'], current: isCors }]} />
      {isCors ? <CorsForm /> : <Keys />}
    </>
  );
}

function Keys() {
  const [chosen] = useParam('section');
  const [typed] = useParam('q');
  const [dialog, setDialog] = useDialog();
  const result = useRequest(async (signal) => {
    const [sections, settings] = await Promise.all([readConfig(signal), readSettings(signal)]);
    return entries(sections, settings);
  }, []);
  if (result.error) return <Problem error={result.error} again={result.again} />;
  if (!result.data) return <Skeleton lines={10} />;
  const all = result.data;
  const sections = [...new Set(all.map(({ section }) => section))].sort();
  const section = sections.includes(chosen) ? chosen : sections.includes('couchdb') ? 'couchdb' : (sections[0] ?? '');
  const hay = typed.toLowerCase();
  const shown = all.filter((entry) => (hay === '' ? entry.section === section : `${entry.section} ${entry.key} ${entry.value ?? ''} ${entry.setting?.doc ?? ''}`.toLowerCase().includes(hay)));
  // Without a search, the export contains all sections, although the page shows one.
  const exported = hay === '' ? all : shown;
  return (
    <>
      <div class="toolbar"><div class="grow"><Field label="Search keys and descriptions" hideLabel type="search" value={typed} onValue={(q) => setParams({ q }, true)} placeholder="Search keys, values and descriptions" /></div>{exported.length > 0 && <Export name="configuration" source={() => objectSource(exported.map(exportedKey))} />}<Button icon="plus" onClick={() => setDialog('add')}>Add a key</Button></div>
      <div class="config">
        <nav aria-label="Sections">{sections.map((name) => <Link key={name} to={['config']} query={{ section: name }} aria-current={hay === '' && name === section ? 'true' : undefined}>{name}</Link>)}</nav>
        <Card flush title={hay === '' ? `[${section}]` : plural(shown.length, 'key')}>
          {shown.length === 0 && <Empty icon="search" title="No key matches" />}
          <div class="key-list">{shown.slice(0, 200).map((entry) => <Key key={`${entry.section}/${entry.key}`} entry={entry} withSection={hay !== ''} again={result.again} />)}</div>
        </Card>
      </div>
      {dialog === 'add' && <Add section={section} known={all} onClose={() => setDialog('')} onDone={result.again} />}
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

/** Names of configuration keys with secret values, which are never shown and never stored in drafts. */
const SECRET = /secret|password|passwd|token|hmac|_key$|^key$/i;

/** Masks the passwords of all URLs in a value, both before the host and as a parameter. */
const masked = (value: string) => value.replaceAll(/(\w:\/\/[^/:@\s,]*):[^@/\s,]*@/g, '$1:***@').replaceAll(/([?&]\w*password=)[^&\s,]*/gi, '$1***');

/** Returns a key as it is exported. Secrets, hashes of passwords and passwords in URLs are masked. */
export function exportedKey({ section, key, value, setting }: Entry) {
  const current = value ?? setting?.default ?? '';
  const isSecret = section === 'admins' || SECRET.test(key);
  return { section, key, value: isSecret && current !== '' ? '***' : masked(current), ...(setting && { default: setting.default, applies: setting.applies, description: setting.doc }) };
}

const VALUES: Record<string, string[]> = {
  'log/level': ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency', 'none'], 'log/writer': ['stderr', 'file', 'syslog', 'journald'],
  'chttpd_auth/password_scheme': ['pbkdf2', 'simple'], 'chttpd_auth/same_site': ['none', 'lax', 'strict'],
};

const APPLIES = { 'at-once': '', 'after-restart': 'applies after a restart', nowhere: 'stored, but not used by this server' };

function Key({ entry, withSection, again }: { entry: Entry; withSection: boolean; again: () => void }) {
  const { section, key, value, setting } = entry;
  const shown = value ?? setting?.default ?? '';
  const isSecret = SECRET.test(key);
  const edited = useDraft(['config', section, key], shown, shown);
  const [secret, setSecret] = useState('');
  const [text, setText] = isSecret ? [secret, setSecret] : [edited.text, edited.setText];
  const [confirming, setConfirming] = useState(false);
  const { busy, error, run } = useAction();
  const isSwitch = /^(?:true|false)$/.test(setting?.default ?? shown);
  const isDefault = setting?.default !== null && setting?.default !== undefined && shown === setting.default;
  const save = (next: string) => void run(async () => {
    const applies = await setConfig(section, key, next);
    setSecret('');
    edited.saved(next);
    showToast(applies === 'after-restart' ? `${key} is set. The change applies after a restart.` : `${key} is set.`);
    again();
  });
  const label = `${section} ${key}`;
  return (
    <div class="key-item">
      <div class="stack small">
        <span class="row"><span class="name">{withSection ? `[${section}] ` : ''}{key}</span>{!isDefault && value !== undefined && setting && <Tag kind="accent">changed</Tag>}{setting && APPLIES[setting.applies] && <Tag kind="warn">{APPLIES[setting.applies]}</Tag>}</span>
        {setting?.doc && <p class="note"><Sentence text={setting.doc} /></p>}
        {setting?.default !== null && setting?.default !== undefined && !isDefault && <p class="note break">Default: <code>{setting.default === '' ? 'empty' : setting.default}</code></p>}
        <Restored found={edited.restored} onDiscard={edited.discard} />
        <Problem error={error} />
      </div>
      <div class="value-row">
        {isSwitch ? <Check label={text === 'true' ? 'on' : 'off'} checked={text === 'true'} disabled={busy} onChecked={(on) => save(String(on))} />
          : section === 'admins' ? <span class="note">changed under <Link to={['users']}>Users</Link></span>
            : <><ChoiceField label={label} hideLabel choices={VALUES[`${section}/${key}`] ?? []} value={text} onValue={setText} mono {...(isSecret ? { type: 'password', autocomplete: 'new-password', placeholder: shown === '' ? 'not set' : 'set; type to replace it' } : {})} onKeyDown={(event) => { if (event.key === 'Enter' && !(isSecret && text === '')) save(text); }} />{(isSecret ? text !== '' : text !== shown) && <Button kind="primary" busy={busy} onClick={() => save(text)}>Save</Button>}</>}
        {value !== undefined && section !== 'admins' && (!setting || !isDefault) && <Button kind="quiet" icon="trash" label={setting ? `Reset ${label} to the default` : `Delete ${label}`} onClick={() => setConfirming(true)} />}
      </div>
      {confirming && <Confirm title={setting ? 'Reset to the default?' : 'Delete this key?'} verb={setting ? 'Reset to the default' : 'Delete'} onClose={() => setConfirming(false)} act={async () => { await unsetConfig(section, key); again(); }}><p>[{section}] {key}{isSecret ? '' : ` = ${shown}`}</p></Confirm>}
    </div>
  );
}

function Add({ section, known, onClose, onDone }: { section: string; known: Entry[]; onClose: () => void; onDone: () => void }) {
  const form = useForm(['new key', section], { name: section, key: '', value: '' });
  const { name, key, value } = form.value;
  const { busy, error, run } = useAction();
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await setConfig(name, key, value);
      form.discard();
      onDone();
      onClose();
      setParams({ section: name, do: undefined });
    });
  };
  return (
    <Dialog title="Add a key" onClose={onClose}><form class="stack" onSubmit={submit}>
      <ChoiceField label="Section" value={name} onValue={(typed) => form.set({ name: typed })} choices={[...new Set(known.map((entry) => entry.section))]} required mono /><ChoiceField label="Key" value={key} onValue={(typed) => form.set({ key: typed })} choices={known.filter((entry) => entry.section === name).map((entry) => entry.key)} required mono autofocus /><Field label="Value" value={value} onValue={(typed) => form.set({ value: typed })} mono />
      <Restored found={form.restored} onDiscard={form.discard} />
      <Problem error={error} /><div class="actions end"><Button onClick={onClose}>Cancel</Button><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
    </form></Dialog>
  );
}

const NO_CORS: Cors = { enabled: false, origins: '', credentials: false, headers: '', methods: '' };

function CorsForm() {
  const result = useRequest((signal) => readConfig(signal).then(corsOf), []);
  const form = useForm<Cors>(['cors'], result.data ?? NO_CORS);
  const { busy, error, run } = useAction();
  if (result.error) return <Problem error={result.error} />;
  if (!result.data) return <Skeleton />;
  const draft = form.value;
  const risky = draft.enabled && draft.credentials && draft.origins.split(',').some((origin) => origin.trim() === '*');
  const submit = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      await setCors(draft);
      result.put(draft);
      form.discard();
      showToast('CORS is saved.');
      result.again();
    });
  };
  return (
    <form class="stack narrow" onSubmit={submit}>
      <Card>
        <Check label="Allow requests from pages of other origins" checked={draft.enabled} onChecked={(enabled) => form.set({ enabled })} hint="Needed by PouchDB and other applications in browsers." />
        <Field label="Origins" value={draft.origins} onValue={(origins) => form.set({ origins })} mono placeholder="https://app.example.com, http://localhost:3000" hint="Separated by commas; * allows all origins." />
        <Check label="With cookies and passwords" checked={draft.credentials} onChecked={(credentials) => form.set({ credentials })} />
        <Field label="Headers" value={draft.headers} onValue={(headers) => form.set({ headers })} mono placeholder={CORS_HEADERS} />
        <Field label="Methods" value={draft.methods} onValue={(methods) => form.set({ methods })} mono placeholder={CORS_METHODS} />
        <Restored found={form.restored} onDiscard={form.discard} />
        {risky && <Notice kind="warn">Every page that a user visits can act with that user's permissions. Name the origins instead.</Notice>}
        <Problem error={error} />
        <div class="actions"><Button kind="primary" type="submit" busy={busy}>Save</Button></div>
      </Card>
    </form>
  );
}
