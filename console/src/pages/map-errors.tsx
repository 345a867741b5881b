/** Notice that the map function of a view throws. Without it such a view would be indistinguishable from one without rows. */
import { post } from '../api/http.ts';
import { path } from '../api/paths.ts';
import { Link, Notice, Sentence } from '../ui/kit.tsx';
import { useRequest } from '../ui/use.ts';
import { number, plural } from '../ui/words.ts';

interface Outcome {
  documents: number;
  errors: { id: string | null; error: string; reason: string }[];
}

const SAMPLE = 200;

/** Runs the function on a sample of the documents. Shows nothing on servers without `_view_test`. */
export function MapErrors({ db, ddoc, name, map }: { db: string; ddoc: string; name: string; map: string }) {
  const result = useRequest((signal) => post<Outcome>(path`${db}/_view_test`, { map, sample: SAMPLE }, signal).catch(() => undefined), [db, map]);
  const [first] = result.data?.errors ?? [];
  if (!result.data || !first) return null;
  const count = new Set(result.data.errors.map(({ id }) => id)).size;
  return (
    <Notice kind="warn">
      <p>The map function throws for {number(count)} of {plural(result.data.documents, 'sampled document')}. They have no rows in the view.</p>
      <p><strong><Sentence text={first.reason} /></strong>{first.id !== null && <>, in the document <Link to={['db', db, 'doc', first.id]}>{first.id}</Link></>}. <Link to={['db', db, 'playground']} query={{ ddoc, name }}>Open the playground</Link> to see all errors.</p>
    </Notice>
  );
}
