/** The list of other servers, which is stored in the content security policy of the console. */
import { useState } from 'preact/hooks';
import { CORS_HEADERS, CORS_METHODS, setConfig } from '../api/config.ts';
import { pagePolicy } from '../api/http.ts';
import { nameOf, policyWith, server, serversOf, urlOf } from '../api/servers.ts';
import { isAdmin } from '../api/session.ts';
import { goTo, hrefOf } from '../router.ts';
import { Button, Card, Confirm, Empty, Field, Json, PageHead, Problem, Skeleton } from '../ui/kit.tsx';
import { useAction, useRequest } from '../ui/use.ts';

export function Servers() {
  const [url, setUrl] = useState('');
  const [deleting, setDeleting] = useState<string>();
  const result = useRequest(() => pagePolicy().then(serversOf), []);
  const { busy, error, run } = useAction();
  if (server !== '') return <Empty icon="server" title="The list belongs to the server of the console" action={<Button kind="primary" onClick={() => goTo('', ['servers'])}>Servers of {location.host}</Button>} />;
  const name = nameOf(url);
  const problem = url === '' || name !== undefined ? undefined : 'Enter a URL such as https://couch.example.com:6984/, without a user name.';
  const add = (event: Event) => {
    event.preventDefault();
    void run(async () => {
      if (name !== undefined) await store((names) => [...names.filter((each) => each !== name), name]);
    });
  };
  return (
    <div class="stack narrow">
      <PageHead title="Servers" note="Other servers, each with its own page in this window" />
      <Problem error={result.error} again={result.again} />
      <Card flush>
        {!result.data && !result.error && <Skeleton lines={2} />}
        {result.data?.length === 0 && <Empty icon="server" title="No other servers">{isAdmin() ? 'Add one below. A tab for each server then appears at the top of the window.' : 'An administrator of this server adds them.'}</Empty>}
        {result.data && result.data.length > 0 && (
          <div class="table-wrap"><table>
            <caption class="unseen">Other servers</caption>
            <thead><tr><th scope="col">Server</th><th scope="col"><span class="unseen">Actions</span></th></tr></thead>
            <tbody>{result.data.map((each) => (
              <tr key={each}><td><a href={hrefOf(each)}>{each}</a></td>
                <td class="tight">{isAdmin() && <Button kind="quiet" icon="trash" label={`Remove ${each}`} onClick={() => setDeleting(each)} />}</td></tr>
            ))}</tbody>
          </table></div>
        )}
      </Card>
      {isAdmin() && (
        <Card title="Add a server" note="For all users of this console. The policy of its pages permits requests to the listed servers only ([csp] utils_header_value).">
          <form class="stack" onSubmit={add}>
            <Field label="URL" type="url" value={url} onValue={setUrl} placeholder="https://couch.example.com:6984/" problem={problem} required />
            <Problem error={error} />
            <div class="actions"><Button kind="primary" type="submit" busy={busy} disabled={name === undefined}>Add</Button></div>
          </form>
        </Card>
      )}
      <Card title="Settings of the other server" note="Its CORS settings must permit the origin of this page. They need not permit credentials, because the console sends the password in a header.">
        <Json label="CORS settings of the other server" text={`[chttpd]\nenable_cors = true\n\n[cors]\norigins = ${location.origin}\nheaders = ${CORS_HEADERS}\nmethods = ${CORS_METHODS}`} />
      </Card>
      {deleting !== undefined && <Confirm title="Remove this server?" verb="Remove" onClose={() => setDeleting(undefined)} act={() => store((names) => names.filter((each) => each !== deleting))}>
        <p>{urlOf(deleting)} is removed from the list of this console. The server itself is not changed.</p>
      </Confirm>}
    </div>
  );
}

/** Stores the list in the policy and reloads the page, because a policy applies from the next load. */
async function store(change: (names: string[]) => string[]): Promise<void> {
  const policy = await pagePolicy();
  await setConfig('csp', 'utils_header_value', policyWith(policy, change(serversOf(policy))));
  location.reload();
}
