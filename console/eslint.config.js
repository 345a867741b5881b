import tseslint from 'typescript-eslint';

// Preact escapes text; these properties would bypass the escaping.
const MARKUP = ['innerHTML', 'outerHTML', 'dangerouslySetInnerHTML', 'insertAdjacentHTML', 'srcdoc'];

export default tseslint.config(
  { ignores: ['dist', 'node_modules', 'browser'] },
  ...tseslint.configs.recommendedTypeChecked.map((config) => ({ ...config, files: ['src/**/*.{ts,tsx}'] })),
  {
    files: ['src/**/*.{ts,tsx}'],
    languageOptions: { parserOptions: { project: './tsconfig.json', tsconfigRootDir: import.meta.dirname } },
    rules: {
      'max-lines': ['error', 600],
      'no-eval': 'error',
      'no-implied-eval': 'off',
      '@typescript-eslint/no-implied-eval': 'error',
      'no-restricted-properties': ['error', { object: 'document', property: 'write' }],
      'no-restricted-syntax': ['error', ...MARKUP.flatMap((name) => [
        { selector: `MemberExpression[property.name="${name}"]`, message: 'Stored data must be rendered as text, not as markup.' },
        { selector: `JSXAttribute[name.name="${name}"]`, message: 'Stored data must be rendered as text, not as markup.' },
      ])],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      '@typescript-eslint/only-throw-error': 'error',
      '@typescript-eslint/consistent-type-imports': ['error', { fixStyle: 'inline-type-imports' }],
    },
  },
);
