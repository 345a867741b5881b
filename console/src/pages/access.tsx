/** The effective permissions of a user in each database. */
import { ACCESS_DBS_MAX, accessOf, type Permission } from '../api/access.ts';
import { Dialog, Link, Notice, Problem, Skeleton, Tag } from '../ui/kit.tsx';
import { useRequest } from '../ui/use.ts';
import { number } from '../ui/words.ts';

const TEXTS: Record<Permission, string> = {
  'server admin': 'everything', admin: 'reads and writes, also design documents and permissions', member: 'reads and writes', open: 'reads and writes, as every client', none: 'nothing',
};

export function Access({ user, onClose }: { user: { name: string; roles: string[] }; onClose: () => void }) {
  const result = useRequest((signal) => accessOf(user, signal), [user.name]);
  return (
    <Dialog title={`Effective permissions of ${user.name}`} wide onClose={onClose}>
      <Notice><p>Calculated from the permissions of each database and the roles of the user. Validation functions, settings such as require_valid_user, and the rules of _users and _replicator can impose further restrictions.</p></Notice>
      <Problem error={result.error} again={result.again} />
      {!result.data && !result.error && <Skeleton lines={4} />}
      {result.data && <div class="table-wrap refusals" tabIndex={0} role="region" aria-label="Effective permissions"><table>
        <caption class="unseen">Effective permissions</caption>
        <thead><tr><th scope="col">Database</th><th scope="col">Permission</th><th scope="col">Granted by</th></tr></thead>
        <tbody>{result.data.permissions.map(({ db, permission, because }) => <tr key={db}><td><Link to={['db', db, 'settings']}>{db}</Link></td><td><Tag kind={permission === 'none' ? 'plain' : permission === 'open' ? 'warn' : 'good'}>{TEXTS[permission]}</Tag></td><td>{because}</td></tr>)}</tbody>
      </table></div>}
      {result.data?.isCut && <p class="note">The first {number(ACCESS_DBS_MAX)} databases.</p>}
    </Dialog>
  );
}
